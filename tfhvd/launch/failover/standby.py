"""The launcher of an elastic job as a pair of processes: if one is killed, the job continues.

The user starts the standby process. It starts the supervisor, and starts a new one if the
supervisor is killed. The new supervisor continues from the snapshot, and from the state that the
agents send when they connect again. If the standby process is killed, the supervisor continues
alone.
"""

from __future__ import annotations

import os
import pickle
import signal
import struct
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tfhvd.launch.state.rank_state import signal_name
from tfhvd.system import subreaper
from tfhvd.system.signal_pipe import PASSED_ON, STOPPING

_TAKEN = {*STOPPING, *PASSED_ON, signal.SIGCHLD}
_SHORT, _MOST_SHORT = 1.0, 5  # seconds of a short life; how many short lives in a row are allowed


class LocalSnapshot:
    """The part of a supervisor's state that the next one cannot learn from the agents.

    It is a file in memory that both processes hold. A written snapshot stays complete, even if the
    writer is killed while it writes the next one.

    Attributes:
        words: a pipe, (to read, to write), for the output of the processes that a supervisor
            starts, which may outlive it.
    """

    _HEAD = struct.Struct("!QQ")  # the offset and the length of the latest snapshot

    def __init__(self) -> None:
        self._file = os.memfd_create("tfhvdrun-journal")
        self._latest = b""
        self._keeper = os.getpid()
        self.words = os.pipe()

    def write(self, state: object) -> None:
        """Replace the snapshot."""
        data = pickle.dumps(state)
        if data == self._latest:
            return
        # Write next to the last snapshot; the head, written at once, then points to the new one.
        begin, size = self._where()
        room = self._HEAD.size
        at = room if begin - room >= len(data) or begin == 0 else begin + size
        os.pwrite(self._file, data, at)
        os.pwrite(self._file, self._HEAD.pack(at, len(data)), 0)
        self._latest = data

    def read(self) -> Any:
        """Return the last snapshot; None if there is none."""
        begin, size = self._where()
        return pickle.loads(os.pread(self._file, size, begin)) if size else None

    @property
    def keeper_is_gone(self) -> bool:
        """Whether the standby process, the parent of the supervisor, has ended."""
        return os.getppid() != self._keeper

    def close(self) -> None:
        """Close the descriptors."""
        for descriptor in (self._file, *self.words):
            os.close(descriptor)

    def _where(self) -> tuple[int, int]:
        head = os.pread(self._file, self._HEAD.size, 0)
        return self._HEAD.unpack(head) if head else (0, 0)


@dataclass(frozen=True)
class Outcome:
    """The end of a job.

    Attributes:
        code: the exit code of tfhvdrun.
        interrupted: whether a signal has ended it, and not a failure.
    """

    code: int
    interrupted: bool


def keep(supervise: Callable[[LocalSnapshot], Outcome]) -> Outcome:
    """Run `supervise` in a child process, and again whenever a signal has killed the child.

    Only for a process with one thread. It forwards to the child the signals that processes send; a
    terminal sends its signals to both processes.

    Args:
        supervise: the function to run; the snapshot holds the state of the last supervisor.
    """
    snapshot = LocalSnapshot()
    mask = set(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, _TAKEN)))
    subreaper.adopt()
    short = 0
    try:
        while True:
            began = time.monotonic()
            code = _wait_for(_start(supervise, snapshot, mask))
            if code >= 0:
                break
            if snapshot.read() is None:
                subreaper.sweep()  # no snapshot names the processes that it may have started
            short = short + 1 if time.monotonic() < began + _SHORT else 0
            if short == _MOST_SHORT:
                print(
                    f"tfhvdrun: error: the process that supervises the job was killed by "
                    f"{signal_name(-code)} as soon as it began, {short} times",
                    file=sys.stderr,
                )
                break
        subreaper.sweep()
        outcome = snapshot.read()
        return outcome if isinstance(outcome, Outcome) else Outcome(abs(code) or 1, False)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        snapshot.close()


def _start(
    supervise: Callable[[LocalSnapshot], Outcome], snapshot: LocalSnapshot, mask: set[int]
) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        outcome = supervise(snapshot)
        snapshot.write(outcome)
        code = outcome.code
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code & 0xFF)


def _wait_for(supervisor: int) -> int:
    """Wait until the supervisor ends; return its exit code; below 0: the signal that killed it."""
    while True:
        told = signal.sigwaitinfo(_TAKEN)
        if told.si_signo != signal.SIGCHLD:
            if told.si_code <= 0:  # sent by a process, not by the terminal
                os.kill(supervisor, told.si_signo)
            continue
        # One signal may report several children, also those of an earlier supervisor.
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == supervisor:
                return os.waitstatus_to_exitcode(ended[1])
