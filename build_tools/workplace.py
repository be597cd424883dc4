"""Where a build keeps what it makes on the way; one build at a time does so there."""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import Callable

_COMMANDS = {
    *("bdist_wheel", "binary_wheel", "build", "build_ext", "develop", "dist_info"),
    *("editable_wheel", "egg_info", "install"),
}
_LOCK = "lock"


def find(root: Path) -> Path:
    """Returns the folder `build` of the tree; for a tree that is read-only, one for this process.

    The latter is removed when the process ends.
    """
    if os.access(root, os.W_OK):
        return root / "build"
    folder = Path(tempfile.mkdtemp(prefix="tfhvd-build-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def options(root: Path, folder: Path) -> dict[str, dict[str, str]]:
    """Returns the options of setuptools' commands that keep them out of a read-only tree."""
    if folder.parent == root:
        return {}
    return {"build": {"build_base": str(folder)}, "egg_info": {"egg_base": str(folder)}}


def hold(folder: Path, words: list[str], say: Callable[[str], None]) -> None:
    """Lets other builds in that folder wait until this process has ended.

    Args:
        folder: What `find` returned.
        words: The command line. The core's tests have folders of their own, and do not wait.
        say: Prints a line where this process is the one to wait.
    """
    if not _COMMANDS & set(words):
        return
    folder.mkdir(parents=True, exist_ok=True)
    # Never closed: the system lets go of it, however the process ends.
    lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say(f"another build is running in {folder}: waiting until it has ended")
        fcntl.flock(lock, fcntl.LOCK_EX)
