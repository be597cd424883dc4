"""How mpirun and ranks are started.

Each ends when whoever has started it does, but for what is to outlive its launcher.
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
    """The process of a child of another process, as far as it has what Popen has.

    Args:
        pid: the child; its parent, or who takes that one's place, takes note of its end.

    Attributes:
        pid: the same.
        returncode: None while it runs, and then 0, for nobody but its parent knows more.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Looks whether it has ended: sets and returns `returncode`."""
        if self.returncode is None:
            try:
                os.kill(self.pid, 0)
            except ProcessLookupError:
                self.returncode = 0
        return self.returncode


class Elsewhere:
    """What has started ranks from a host that is lost: it counts as running as long as they do.

    Args:
        over: whether the job is.

    Attributes:
        pid: 0.
        returncode: None while it runs, and then 0.
    """

    def __init__(self, over: Callable[[], bool]) -> None:
        self.pid = 0
        self.returncode: int | None = None
        self._over = over

    def poll(self) -> int | None:
        """Looks whether it has ended: sets and returns `returncode`."""
        if self._over():
            self.returncode = 0
        return self.returncode


Process = Union["subprocess.Popen[bytes]", Adopted, Elsewhere]


def start_manager(
    argv: Sequence[str], env: Mapping[str, str], says: int | None = None
) -> subprocess.Popen[bytes]:
    """Starts mpirun, or what takes its place, in a session of its own: Ctrl-C is passed on to it.

    Args:
        argv: its command line.
        env: its environment.
        says: where it writes what it has to say; it then outlives this process. None: into pipes.

    Raises:
        OSError: if it cannot be started.
    """
    # Ranks read nothing: Open MPI 5 never tells rank 0 of the end of its input.
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
    """Starts a rank in a process group of its own.

    Raises:
        OSError: if it cannot be started.
    """
    # close_fds=False: MPICH hands its ranks an open descriptor (PMI_FD).
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
    """What the child does first; ``at_the_end``: the signal that it gets when its parent ends."""
    libc, parent = ctypes.CDLL(None), os.getpid()

    def run() -> None:
        own_group()
        libc.prctl(_PR_SET_PDEATHSIG, int(at_the_end), 0, 0, 0)
        if os.getppid() != parent:  # it has ended already
            os._exit(1)

    return run
