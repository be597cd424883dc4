"""The program that starts the ranks, as the launcher sees it: mpirun, or spawn.py without an MPI.

What it says is passed on, or held back once the job is failing or over: then it only repeats what
others have said, unless it alone knows.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import subprocess
from collections.abc import Callable

from tfhvd.launch.state.rank_state import signal_name
from tfhvd.launch.stdio.output import Output
from tfhvd.system import popen


class ManagerOutput:
    """What process managers say: passed on, or held back.

    Args:
        select: where their pipes are registered.
        output: where what they say goes.
        hold_back: whether what they say now is to be held back.
    """

    def __init__(
        self, select: selectors.BaseSelector, output: Output, hold_back: Callable[[], bool]
    ) -> None:
        self._select = select
        self._output = output
        self._hold_back = hold_back
        self._held_back = bytearray()
        self._pipes: list[int] = []

    def listen(self, fd: int) -> None:
        """From now on takes in what comes from a pipe, whose owner it does not become."""
        self._pipes.append(fd)
        self._select.register(fd, selectors.EVENT_READ, lambda: self._on_readable(fd))

    def read_the_rest(self) -> None:
        """Takes in what they have said until now, without waiting."""
        for fd in self._pipes:
            os.set_blocking(fd, False)
            with contextlib.suppress(BlockingIOError, KeyError):
                while fd in self._select.get_map():
                    self._on_readable(fd)

    def show(self) -> None:
        """Passes on what was held back."""
        self._output.message(bytes(self._held_back))
        self._held_back.clear()

    def _on_readable(self, fd: int) -> None:
        data = os.read(fd, 1 << 16)
        if not data:
            self._select.unregister(fd)
        elif self._hold_back():
            self._held_back += data
        else:
            self._output.message(data)


class ProcessManager:
    """One run of it.

    Args:
        name: what people know it as.
        process: its process, which leads a process group.
        says: takes what it says.

    Attributes:
        pid: its process.
    """

    def __init__(self, name: str, process: popen.Process, says: ManagerOutput) -> None:
        self._name = name
        self._process = process
        self._says = says
        self._ended_by_us = False
        self.pid = process.pid
        if isinstance(process, subprocess.Popen):
            for pipe in filter(None, (process.stdout, process.stderr)):
                says.listen(pipe.fileno())

    @property
    def has_ended(self) -> bool:
        """Whether its process has."""
        return self._process.poll() is not None

    @property
    def code(self) -> int:
        """Its exit code; below 0: the signal that has killed it. REQUIRES: it has ended."""
        code: int | None = self._process.returncode
        assert code is not None
        return code

    def signal(self, number: int) -> None:
        """Sends a signal to it and what it has started on this host, if it has not ended."""
        if not self.has_ended:
            self._ended_by_us = True
            if isinstance(self._process, popen.Elsewhere):
                self._process.returncode = 0
                return
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def end_in_words(self) -> list[str]:
        """Shows what was held back; returns how it has ended, unless it was ended by us."""
        self._says.show()
        if self._ended_by_us:
            return []
        how = f"ended with exit code {self.code}"
        if self.code < 0:
            how = f"was killed by {signal_name(-self.code)}"
        return [f"tfhvdrun: {self._name} {how}"]

    def end_before_ranks_in_words(self, missing: int, of: int) -> str:
        """Shows what was held back; returns how it has ended before so many ranks had started."""
        self._says.show()
        return (
            f"tfhvdrun: error: {self._name} ended (exit code {self.code}) before {missing} of "
            f"{of} ranks had started; its own messages are above"
        )
