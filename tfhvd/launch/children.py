"""How mpirun and ranks are started: each ends when whoever has started it does."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence

_PR_SET_PDEATHSIG = 1


def start_mpirun(argv: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Starts it in a session of its own: Ctrl-C is the launcher's to pass on.

    Raises:
        OSError: if it cannot be started.
    """
    # Ranks read nothing: Open MPI 5 never tells rank 0 of the end of its input.
    return subprocess.Popen(
        list(argv),
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        preexec_fn=_before_exec(os.setsid, signal.SIGTERM),
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
