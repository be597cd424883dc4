"""Files that others see whole or not at all, whenever the process ends."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def replacing(path: Path, writers: bool = False) -> Iterator[Path]:
    """Gives another name in the folder of a file, for what is to take its place at the end.

    Args:
        path: of the file; it stays as it is, or is not there, if the context is left by an error.
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
    """Waits until the disk has a file, or knows which files a folder has."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
