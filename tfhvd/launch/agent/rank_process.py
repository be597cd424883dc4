"""The process of a rank, as its agent holds it: its start, its signals and its end.

    WAITING ---start---> RUNNING ---reap---> EXITED ---reported---> REPORTED
       |                                       ^
       +--- a signal that ends the rank -------+

A rank that cannot be started goes from WAITING to REPORTED at once.
"""

from __future__ import annotations

import contextlib
import enum
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import IO

from tfhvd.launch.agent import rank_record
from tfhvd.system import cgroups, popen, subreaper

_COUNT_KILLS = 5.0  # seconds between two counts of the processes that the kernel has killed
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL)


class RankState(enum.Enum):
    """The state of a rank, from before its start to the report of its end."""

    WAITING = "waiting"  # for the addresses of the other ranks
    RUNNING = "running"
    EXITED = "exited"
    REPORTED = "reported"  # the launcher knows how it ended


class RankProcess:
    """One rank's process. Single-threaded.

    Attributes:
        state: see RankState.
        ended_at: seconds of a steady clock, once the rank has exited.
        record: the flight record of the rank.
        was_stopped: whether SIGSTOP had stopped the rank when it was killed.
    """

    def __init__(self) -> None:
        self.state = RankState.WAITING
        self.ended_at = 0.0
        self.record = rank_record.KeptRecord()
        self._popen: subprocess.Popen[bytes] | None = None
        self._status = 0  # after its exit, as Popen.returncode: negative for a signal
        self.was_stopped = False
        self._stopped_since: float | None = None
        # The number of processes killed for want of memory: some seconds ago, and now. A killed
        # process may take a second to end.
        self._kills = (cgroups.memory_kills(),) * 2
        self._count_at = time.monotonic() + _COUNT_KILLS

    @property
    def pid(self) -> int:
        """The process id; 0 before the start."""
        return 0 if self._popen is None else self._popen.pid

    @property
    def has_exited(self) -> bool:
        """Whether the rank has ended, reported or not."""
        return self.state in (RankState.EXITED, RankState.REPORTED)

    def start(
        self, command: Sequence[str], env: Mapping[str, str], *, has_input: bool
    ) -> tuple[IO[bytes], IO[bytes], IO[bytes] | None]:
        """Start the command.

        Args:
            command: the rank's command.
            env: its environment.
            has_input: whether its stdin is a pipe; else stdin is empty.

        Returns:
            Its stdout, stderr and, if it has input, stdin.

        Raises:
            OSError: if the command cannot start; the state is then REPORTED.
        """
        try:
            stdin = subprocess.PIPE if has_input else subprocess.DEVNULL
            self._popen = popen.start_rank(command, env, stdin)
        except OSError:
            self._status, self.state = 127, RankState.REPORTED
            raise
        self.state = RankState.RUNNING
        assert self._popen.stdout is not None and self._popen.stderr is not None
        return self._popen.stdout, self._popen.stderr, self._popen.stdin

    def reap(self) -> None:
        """Note the end of the rank, and of the orphans that it has left."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                if self._popen is not None and pid == self._popen.pid:
                    self._popen.returncode = os.waitstatus_to_exitcode(status)
                    self._exit(self._popen.returncode)

    def count_kills(self, now: float) -> None:
        """Count the processes that the kernel has killed for want of memory, if it is time."""
        if not self.has_exited and now >= self._count_at:
            self._count_at = now + _COUNT_KILLS
            self._kills = (self._kills[1], cgroups.memory_kills())

    def signal(self, number: int, *, group: bool) -> None:
        """Send a signal to the rank, or keep it from starting.

        Args:
            number: the signal.
            group: whether it is also for the processes that the rank has started.
        """
        if self.has_exited:
            return
        if self._popen is None:
            if number in _ENDING:
                self._exit(-number)
            return
        if number == signal.SIGKILL:
            self.was_stopped = self.was_stopped or bool(subreaper.stopped(self._popen.pid))
        with contextlib.suppress(ProcessLookupError, PermissionError):
            (os.killpg if group else os.kill)(self._popen.pid, number)

    def kill_if_stopped(self, limit: float) -> None:
        """Kill the rank once SIGSTOP has stopped it for `limit` seconds, by repeated calls."""
        if self.state is not RankState.RUNNING:
            return
        now = time.monotonic()
        # Without a record it is unknown which of the rank's processes trains.
        pids = {self.pid, self.record.process} if self.record.process else None
        if not subreaper.stopped(self.pid, pids):
            self._stopped_since = None
        elif self._stopped_since is None:
            self._stopped_since = now
        elif now >= self._stopped_since + limit:
            self.signal(signal.SIGKILL, group=True)

    def report(self, *, told: bool) -> dict[str, object]:
        """Return the fields of EXIT; the state is REPORTED from now on. REQUIRES: EXITED.

        Args:
            told: whether a signal to the agent, or the loss of the launcher, has ended the rank.
        """
        self.state = RankState.REPORTED
        fields: dict[str, object] = {
            "ago": time.monotonic() - self.ended_at,
            "doing": self.record.doing(self.ended_at),
        }
        if self._status >= 0:
            silent = self._status == 0 and self.record.takes_part
            return fields | {"code": self._status, "silent": silent}
        killed = self._status == -signal.SIGKILL
        return fields | {
            "signal": -self._status,
            "told": told,
            "stopped": self.was_stopped,
            "out_of_memory": killed and cgroups.memory_kills() > self._kills[0],
        }

    def _exit(self, status: int) -> None:
        self.state, self._status, self.ended_at = RankState.EXITED, status, time.monotonic()
