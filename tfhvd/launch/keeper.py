"""The launcher of an elastic job is two processes: where one is killed, the job goes on.

The keeper is the one that the user has started. It waits, and starts the supervisor, again where
that is killed. Whoever supervises next takes the job up by the journal, and by what the workers say
when they come to it. Where the keeper is killed, the supervisor goes on alone.
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

from tfhvd.launch import orphans
from tfhvd.launch.ending import signal_name
from tfhvd.launch.signals import PASSED_ON, STOPPING

_TAKEN = {*STOPPING, *PASSED_ON, signal.SIGCHLD}
_SHORT, _MOST_SHORT = 1.0, 5  # seconds of a life that is short, and how many there may be in a row


class Journal:
    """What a supervisor knows that the next one cannot learn from anybody else.

    It is a file in memory that both processes hold: what has been written stays whole, whenever the
    writer is killed.

    Attributes:
        words: a pipe, (to read, to write), for what the processes say that a supervisor starts:
            they may go on saying it after its end.
    """

    _HEAD = struct.Struct("!QQ")  # where the latest begins, and how long it is

    def __init__(self) -> None:
        self._file = os.memfd_create("tfhvdrun-journal")
        self._latest = b""
        self._keeper = os.getpid()
        self.words = os.pipe()

    def write(self, state: object) -> None:
        """Takes what there is to know now in the place of what there was."""
        data = pickle.dumps(state)
        if data == self._latest:
            return
        # Beside what stands there, which the head, written in one piece, gives up.
        begin, size = self._where()
        room = self._HEAD.size
        at = room if begin - room >= len(data) or begin == 0 else begin + size
        os.pwrite(self._file, data, at)
        os.pwrite(self._file, self._HEAD.pack(at, len(data)), 0)
        self._latest = data

    def read(self) -> Any:
        """What was written last; None where nothing was."""
        begin, size = self._where()
        return pickle.loads(os.pread(self._file, size, begin)) if size else None

    @property
    def keeper_is_gone(self) -> bool:
        """Whether the process that has made this, the writer's parent, has ended."""
        return os.getppid() != self._keeper

    def close(self) -> None:
        """Gives the descriptors back."""
        for descriptor in (self._file, *self.words):
            os.close(descriptor)

    def _where(self) -> tuple[int, int]:
        head = os.pread(self._file, self._HEAD.size, 0)
        return self._HEAD.unpack(head) if head else (0, 0)


@dataclass(frozen=True)
class Outcome:
    """How a job has ended.

    Attributes:
        code: the exit code of tfhvdrun.
        interrupted: whether somebody, not a failure, has ended it.
    """

    code: int
    interrupted: bool


def keep(supervise: Callable[[Journal], Outcome]) -> Outcome:
    """Runs `supervise` in a process of its own, and again whenever a signal has killed that one.

    For a process with one thread. Passes the signals on that others send to it; those of a terminal
    both get.

    Args:
        supervise: what to run; the journal says what the one before knew.
    """
    journal = Journal()
    mask = set(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, _TAKEN)))
    orphans.adopt()
    short = 0
    try:
        while True:
            began = time.monotonic()
            code = _wait_for(_start(supervise, journal, mask))
            if code >= 0:
                break
            if journal.read() is None:
                orphans.sweep()  # nobody knows of what it may have started
            short = short + 1 if time.monotonic() < began + _SHORT else 0
            if short == _MOST_SHORT:
                print(
                    f"tfhvdrun: error: the process that supervises the job was killed by "
                    f"{signal_name(-code)} as soon as it began, {short} times",
                    file=sys.stderr,
                )
                break
        orphans.sweep()
        outcome = journal.read()
        return outcome if isinstance(outcome, Outcome) else Outcome(abs(code) or 1, False)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        journal.close()


def _start(supervise: Callable[[Journal], Outcome], journal: Journal, mask: set[int]) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        outcome = supervise(journal)
        journal.write(outcome)
        code = outcome.code
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code & 0xFF)


def _wait_for(supervisor: int) -> int:
    """Waits for its end; returns its exit code; below 0: the signal that has killed it."""
    while True:
        told = signal.sigwaitinfo(_TAKEN)
        if told.si_signo != signal.SIGCHLD:
            if told.si_code <= 0:  # sent by a process, not by the terminal
                os.kill(supervisor, told.si_signo)
            continue
        # One signal may be of several children: also of what a supervisor before has started.
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == supervisor:
                return os.waitstatus_to_exitcode(ended[1])
