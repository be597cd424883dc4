"""The environment of programs that tests start, and where the parts of a launcher are."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# What their Pythons run first: see sitecustomize.py there.
SITE = ROOT / "tests" / "site"


def python_path() -> str:
    """PYTHONPATH, with this tree at its head."""
    return os.pathsep.join(map(str, filter(None, [ROOT, SITE, os.environ.get("PYTHONPATH")])))


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": python_path(), **more}


@contextlib.contextmanager
def busy(count: int) -> Iterator[None]:
    """Lets so many processes compute, each in a session of its own, as other users' do.

    They may use the processors that the calling thread may.
    """
    spin = [sys.executable, "-S", "-c", "while True: pass"]
    processes = [subprocess.Popen(spin, start_new_session=True) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def of(pid: int) -> list[int]:
    """The processes that a process has started, or adopted, and that it has not waited for.

    Raises:
        OSError: if it has ended.
    """
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    return list(map(int, text.split()))


def supervisor_of(launcher: int) -> int:
    """Waits for the process that supervises the job of an elastic tfhvdrun (failover/standby.py).

    Args:
        launcher: the process of the tfhvdrun that was started, or what has started it.
    """

    def words(pid: int) -> str:
        return Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8")

    def look(pid: int) -> int:
        for child in of(pid):
            with contextlib.suppress(OSError):  # it has just ended
                if "tfhvd.launch" in words(child) and words(child) == words(pid):
                    return child
                if deeper := look(child):
                    return deeper
        return 0

    deadline = time.monotonic() + 30
    while not (supervisor := look(launcher)):
        assert time.monotonic() < deadline, "there is no such process"
        time.sleep(0.01)
    return supervisor
