"""Starts mpirun and ranks.

Each process ends when its parent ends, except a process manager that must outlive its launcher.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Union

_PR_SET_PDEATHSIG = 1


class Adopted:
    """A child of another process, with a part of Popen's interface.

    Args:
        pid: the child; its parent, or the process that adopts it, reaps it.

    Attributes:
        pid: as given.
        returncode: None while it runs, then 0, because only the parent knows the exit code.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Checks whether the child has ended; sets and returns `returncode`."""
        if self.returncode is None:
            try:
                os.kill(self.pid, 0)
            except ProcessLookupError:
                self.returncode = 0
        return self.returncode


class Elsewhere:
    """The process manager on a failed host: it counts as running until the job is over.

    Args:
        over: returns whether the job is over.

    Attributes:
        pid: 0.
        returncode: None while it counts as running, then 0.
    """

    def __init__(self, over: Callable[[], bool]) -> None:
        self.pid = 0
        self.returncode: int | None = None
        self._over = over

    def poll(self) -> int | None:
        """Checks whether the job is over; sets and returns `returncode`."""
        if self._over():
            self.returncode = 0
        return self.returncode


Process = Union["subprocess.Popen[bytes]", Adopted, Elsewhere]


def start_manager(
    argv: Sequence[str], env: Mapping[str, str], says: int | None = None
) -> subprocess.Popen[bytes]:
    """Starts mpirun or spawn.py in a new session, so that only this process forwards Ctrl-C to it.

    Args:
        argv: its command line.
        env: its environment.
        says: the descriptor for its output, with which it outlives this process; None for pipes.

    Raises:
        OSError: if it cannot start.
    """
    # Ranks have no input: Open MPI 5 never reports the end of the input to rank 0.
    return subprocess.Popen(
        list(argv),
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if says is None else says,
        stderr=subprocess.PIPE if says is None else says,
        bufsize=0,
        preexec_fn=os.setsid if says is not None else _before_exec(os.setsid, signal.SIGTERM),
    )


def start_rank(
    command: Sequence[str], env: Mapping[str, str], stdin: int
) -> subprocess.Popen[bytes]:
    """Starts a rank in a new process group.

    Raises:
        OSError: if it cannot start.
    """
    # close_fds=False: MPICH gives its ranks an open descriptor (PMI_FD).
    return subprocess.Popen(
        list(command),
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=env,
        close_fds=False,
        bufsize=0,
        preexec_fn=_before_exec(lambda: os.setpgid(0, 0), signal.SIGKILL),
    )


def _before_exec(own_group: Callable[[], object], at_the_end: signal.Signals) -> Callable[[], None]:
    """Returns the child's first steps; it gets the signal ``at_the_end`` when its parent ends."""
    libc, parent = ctypes.CDLL(None), os.getpid()

    def run() -> None:
        own_group()
        libc.prctl(_PR_SET_PDEATHSIG, int(at_the_end), 0, 0, 0)
        if os.getppid() != parent:  # the parent has ended already
            os._exit(1)

    return run
