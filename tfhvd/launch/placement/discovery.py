"""The present hosts of a job, from a command or from a host file that may change.

The command may be a script as for Horovod, which prints a line `name:slots`, or `name`, for each
host; or a query of Slurm, or of the names of Kubernetes' pods. It runs about once a second, and the
launcher never waits for it.
"""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

from tfhvd.launch.errors import UsageError
from tfhvd.launch.state.hosts import Host, read_hostfile, read_hosts

_EVERY = 1.0  # seconds from the end of one run or check to the next
_LIMIT = 30.0  # seconds for one run


class Fixed:
    """Hosts that never change."""

    def __init__(self, hosts: tuple[Host, ...]) -> None:
        self.hosts = hosts

    def tick(self, now: float) -> None:
        """Does nothing: the hosts never change."""

    def close(self) -> None:
        """Does nothing: nothing is open."""


class HostFile:
    """The hosts of a file, which may change.

    Args:
        path: the file.
        warn: gets each problem of the file once; the hosts then do not change.

    Attributes:
        hosts: the hosts at the last successful check.
    """

    def __init__(self, path: Path, warn: Callable[[str], object]) -> None:
        self._path = path
        self._warn = _Once(warn)
        self._next = 0.0
        self.hosts = read_hostfile(path)

    def tick(self, now: float) -> None:
        """Checks the file, if it is time."""
        if now < self._next:
            return
        self._next = now + _EVERY
        try:
            self.hosts = read_hostfile(self._path)
        except UsageError as error:
            self._warn(str(error))

    def close(self) -> None:
        """Does nothing: nothing is open."""


class Command:
    """The hosts that a command prints.

    Args:
        words: the command line.
        read: returns the hosts in the command's output; raises UsageError if it is malformed.
        warn: gets each problem of the command once; the hosts then do not change.
        hosts: the hosts until the first run has ended.

    Attributes:
        hosts: the hosts from the last successful run.
    """

    def __init__(
        self,
        words: tuple[str, ...],
        read: Callable[[str], tuple[Host, ...]],
        warn: Callable[[str], object],
        hosts: tuple[Host, ...] = (),
    ) -> None:
        self._words = words
        self._read = read
        self._warn = _Once(warn)
        self._next = 0.0
        self._give_up = 0.0
        self._process: subprocess.Popen[bytes] | None = None
        self._printed: IO[bytes] | None = None
        self.hosts = hosts

    def tick(self, now: float) -> None:
        """Starts the command, if it is time; reads its output, if it has ended."""
        if self._process is None:
            if now >= self._next:
                self._start(now)
            return
        code = self._process.poll()
        if code is None and now < self._give_up:
            return
        if code is None:
            self.close()
            self._warn(f"{self._words[0]} has not ended within {_LIMIT:g} s, and was killed")
        else:
            self._take(code)
        self._process = None
        self._next = now + _EVERY

    def close(self) -> None:
        """Ends a running command."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _start(self, now: float) -> None:
        self._give_up = now + _LIMIT
        self._next = now + _EVERY
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115 (read once the process has ended)
        try:
            self._process = subprocess.Popen(
                list(self._words), stdin=subprocess.DEVNULL, stdout=self._printed
            )
        except OSError as error:
            self._warn(f"{self._words[0]} cannot be run: {error.strerror or error}")

    def _take(self, code: int) -> None:
        assert self._printed is not None
        self._printed.seek(0)
        with contextlib.closing(self._printed) as printed:
            text = printed.read().decode(errors="replace")
        if code != 0:
            self._warn(f"{self._words[0]} has ended with exit code {code}")
            return
        try:
            self.hosts = self._read(text)
        except UsageError as error:
            self._warn(str(error))


def script(words: tuple[str, ...], slots: int, warn: Callable[[str], object]) -> Command:
    """Returns the hosts that a script prints; `slots` is for lines without a number."""
    return Command(words, lambda text: read_hosts(text, words[0], slots), warn)


class _Once:
    """A function that passes on each text once."""

    def __init__(self, tell: Callable[[str], object]) -> None:
        self._tell = tell
        self._told: set[str] = set()

    def __call__(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._tell(text)
