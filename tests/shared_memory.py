"""What programs leave behind in /dev/shm: files that no process uses.

Other jobs, and other tests, may have files there meanwhile.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import mpi
import pytest

FOLDER = Path("/dev/shm")


def files() -> set[Path]:
    return set(FOLDER.iterdir())


def left(before: set[Path]) -> set[Path]:
    """Those that were not there before, and that no process has mapped or open."""
    new = files() - before
    return new - _used() if new else new


def check_that_none_is_left(before: set[Path], seconds: float = 30) -> None:
    """Waits until none is left; TimeoutError where one stays."""
    mpi.wait_for(lambda: not left(before), seconds)


@pytest.fixture(autouse=True)
def nothing_left_in_shared_memory() -> Iterator[None]:
    """What every test of a folder must leave as it was whose conftest imports this."""
    before = files()
    yield
    check_that_none_is_left(before)


def _used() -> set[Path]:
    return {FOLDER / Path(path).name for path in _paths() if path.startswith(f"{FOLDER}/")}


def _paths() -> Iterator[str]:
    """All that processes have mapped or open."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has just ended, or is another user's
            for line in (process / "maps").read_text(errors="replace").splitlines():
                yield line.split(maxsplit=5)[-1]
            for descriptor in (process / "fd").iterdir():
                with contextlib.suppress(OSError):
                    yield str(descriptor.readlink())
