"""Files that other processes see complete or not at all, even if their writer is killed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def replacing(path: Path, writers: bool = False) -> Iterator[Path]:
    """Yields the path of a temporary file in the same folder, which replaces a file at the end.

    Args:
        path: the path of the file, which an error in the context leaves unchanged or absent.
        writers: whether other processes may write the same file at the same time.
    """
    unfinished = path.with_name(f"unfinished-{f'{os.getpid()}-' if writers else ''}{path.name}")
    try:
        yield unfinished
        sync(unfinished)
        unfinished.replace(path)
        sync(path.parent)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def sync(path: Path) -> None:
    """Waits until a file, or the list of files in a folder, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
