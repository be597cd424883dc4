"""The program that starts the ranks, as its parent sees it: mpirun, or spawn.py without an MPI.

What it says is passed on, or held back once the job is failing or over: then it only repeats what
others have said, unless it alone knows.
"""

from __future__ import annotations

import contextlib
import os
import selectors
from collections.abc import Callable, Mapping, Sequence

from tfhvd.launch import children
from tfhvd.launch.ending import signal_name
from tfhvd.launch.output import Output


class ProcessManager:
    """One run of it.

    Args:
        name: what people know it as.
        words: its command line.
        env: its environment.
        select: where its pipes are registered.
        output: where what it says goes.
        hold_back: whether what it says now is to be held back.

    Raises:
        OSError: if it cannot be started.
    """

    def __init__(
        self,
        name: str,
        words: Sequence[str],
        env: Mapping[str, str],
        select: selectors.BaseSelector,
        output: Output,
        hold_back: Callable[[], bool],
    ) -> None:
        self._name = name
        self._select = select
        self._output = output
        self._hold_back = hold_back
        self._held_back = bytearray()
        self._ended_by_us = False
        self._process = children.start_mpirun(words, env)
        self._pipes = []
        for pipe in (self._process.stdout, self._process.stderr):
            assert pipe is not None
            fd = pipe.fileno()
            self._pipes.append(fd)
            select.register(fd, selectors.EVENT_READ, lambda fd=fd: self._on_readable(fd))

    @property
    def has_ended(self) -> bool:
        """Whether its process has."""
        return self._process.poll() is not None

    @property
    def code(self) -> int:
        """Its exit code; below 0: the signal that has killed it. REQUIRES: it has ended."""
        return self._process.returncode

    def signal(self, number: int) -> None:
        """Sends a signal to it and what it has started on this host, if it has not ended."""
        if not self.has_ended:
            self._ended_by_us = True
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def read_the_rest(self) -> None:
        """Takes in what it has said until now, without waiting."""
        for fd in self._pipes:
            os.set_blocking(fd, False)
            with contextlib.suppress(BlockingIOError, KeyError):
                while fd in self._select.get_map():
                    self._on_readable(fd)

    def end_in_words(self) -> list[str]:
        """Shows what was held back; returns how it has ended, unless it was ended by us."""
        self._output.message(bytes(self._held_back))
        if self._ended_by_us:
            return []
        how = f"ended with exit code {self.code}"
        if self.code < 0:
            how = f"was killed by {signal_name(-self.code)}"
        return [f"tfhvdrun: {self._name} {how}"]

    def end_before_ranks_in_words(self, missing: int, of: int) -> str:
        """Shows what was held back; returns how it has ended before so many ranks had started."""
        self._output.message(bytes(self._held_back))
        return (
            f"tfhvdrun: error: {self._name} ended (exit code {self.code}) before {missing} of "
            f"{of} ranks had started; its own messages are above"
        )

    def _on_readable(self, fd: int) -> None:
        data = os.read(fd, 1 << 16)
        if not data:
            self._select.unregister(fd)
        elif self._hold_back():
            self._held_back += data
        else:
            self._output.message(data)
