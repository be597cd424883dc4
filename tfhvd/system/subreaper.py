"""Adopts the orphans of our children, and ends them with us, so that no process is left behind."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

from tfhvd.system import procfs

_PR_SET_CHILD_SUBREAPER = 36


def adopt() -> None:
    """Makes each descendant whose parent ends a child of this process from now on, also daemons."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def sweep(spared: int = 0) -> None:
    """Ends all children: first politely, after a second by force. For single-threaded processes.

    Args:
        spared: a child that continues; 0 for none.
    """
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + 1.0
        asked: set[int] = set()
        while time.monotonic() < deadline:
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            left = [pid for pid in _children() if pid != spared]
            if not left:
                return
            for pid in left:
                if pid not in asked:
                    asked.add(pid)
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, number)
            time.sleep(0.02)


def stopped(group: int, pids: Iterable[int] | None = None) -> list[int]:
    """Returns the processes of a process group that a signal has stopped.

    Args:
        group: the number of the group.
        pids: the processes to check; None for all, which may be thousands on a host.
    """
    found = []
    for pid in procfs.all_numbers() if pids is None else pids:
        with contextlib.suppress(OSError):  # ended meanwhile
            if os.getpgid(pid) == group and procfs.state_of(pid) == "T":
                found.append(pid)
    return found


def _children() -> list[int]:
    path = Path(f"/proc/self/task/{os.getpid()}/children")
    try:
        return [int(pid) for pid in path.read_text(encoding="ascii").split()]
    except OSError:
        return []
