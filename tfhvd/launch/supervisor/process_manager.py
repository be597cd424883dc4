"""ProcessManager: the program that starts the ranks, which is mpirun, or spawn.py without an MPI.

The launcher prints the program's output at once. It holds the output back when the job is failing
or over, because the program then mostly repeats what the ranks have said. The summary shows the
held-back output if only the program may know the cause.
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
    """The output of process managers, printed or held back.

    Args:
        select: registers their pipes.
        output: prints their output.
        hold_back: returns whether to hold back present output.
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
        """Reads from a pipe from now on. The caller still owns the pipe."""
        self._pipes.append(fd)
        self._select.register(fd, selectors.EVENT_READ, lambda: self._on_readable(fd))

    def read_the_rest(self) -> None:
        """Reads all output so far, without waiting."""
        for fd in self._pipes:
            os.set_blocking(fd, False)
            with contextlib.suppress(BlockingIOError, KeyError):
                while fd in self._select.get_map():
                    self._on_readable(fd)

    def show(self) -> None:
        """Prints the output that was held back."""
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
    """One run of such a program.

    Args:
        name: the program's name for messages.
        process: its process, which leads a process group.
        says: holds its output.

    Attributes:
        pid: its process id.
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
        """Whether the process has ended."""
        return self._process.poll() is not None

    @property
    def code(self) -> int:
        """The exit code; below 0: the signal that has killed it. REQUIRES: `has_ended`."""
        code: int | None = self._process.returncode
        assert code is not None
        return code

    def signal(self, number: int) -> None:
        """Sends a signal to the process and its children on this host, unless it has ended."""
        if not self.has_ended:
            self._ended_by_us = True
            if isinstance(self._process, popen.Elsewhere):
                self._process.returncode = 0
                return
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def end_in_words(self) -> list[str]:
        """Shows held-back output; returns how the process has ended, unless we have ended it."""
        self._says.show()
        if self._ended_by_us:
            return []
        how = f"ended with exit code {self.code}"
        if self.code < 0:
            how = f"was killed by {signal_name(-self.code)}"
        return [f"tfhvdrun: {self._name} {how}"]

    def end_before_ranks_in_words(self, missing: int, of: int) -> str:
        """Shows held-back output; returns a line on the end before `missing` ranks had started."""
        self._says.show()
        return (
            f"tfhvdrun: error: {self._name} ended (exit code {self.code}) before {missing} of "
            f"{of} ranks had started; its own messages are above"
        )
