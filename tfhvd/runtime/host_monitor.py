"""Snapshots of ranks on other hosts: a helper process of each host's first rank provides them.

This is used only in a job without tfhvdrun; in a job with tfhvdrun, the agents answer. At `init`,
the ranks exchange the addresses of the helper processes, and the secrets that these require.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tfhvd.hang import status_query, status_server
from tfhvd.hang.detector import Views
from tfhvd.hang.status_query import Watcher
from tfhvd.network import address, ports, tokens
from tfhvd.protocol import variables

_logger = logging.getLogger("tfhvd")
_TO_END = 1.0  # seconds for the helper process to end by itself
_AT_ONCE = 16  # hosts to ask at the same time


class Answers:
    """The helper process that answers for the ranks of this host."""

    def __init__(self) -> None:
        self._token = ""
        self._listener: socket.socket | None = None
        self._process: subprocess.Popen[str] | None = None

    def listen(self) -> str:
        """Opens a port; returns the token and addresses for the other ranks, "" without a port."""
        self.close()
        self._token = tokens.new(variables.own())
        try:
            self._listener = address.listen(remote=True, of=ports.of(variables.own()))
        except ports.PortsTakenError as error:
            _logger.warning(
                "%s. If the job hangs because of a rank here, other hosts cannot say why.",
                error.strerror,
            )
            return ""
        except OSError:  # a sandbox may allow no port: other hosts then cannot see these ranks
            return ""
        port = self._listener.getsockname()[1]
        return f"{self._token} {address.addresses(port, remote=True)}"

    def start(self) -> None:
        """Starts the process, which takes over the port."""
        if self._listener is None:
            return
        words = [sys.executable, "-E", "-S", str(Path(status_server.__file__).absolute())]
        words += [str(self._listener.fileno()), str(os.getpid())]
        try:
            self._process = subprocess.Popen(
                words,
                pass_fds=[self._listener.fileno()],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C must reach the ranks only
                text=True,
            )
            self._say(f"{self._token}\n")
        except OSError as error:
            _logger.warning(
                "Cannot start a process that tells other hosts what the ranks of this one do "
                "(%s). If the job hangs because of one of them, the others cannot say why.",
                error,
            )
        self._listener.close()
        self._listener = None

    def _say(self, text: str) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(text)
            self._process.stdin.flush()

    def close(self) -> None:
        """Closes the port, and ends the process."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        if self._process is not None:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                if self._process.stdin is not None:
                    self._process.stdin.close()
                self._process.wait(_TO_END)
            self._process.kill()
            self._process.wait()
            self._process = None


class OtherHosts:
    """The other hosts of the job.

    Args:
        addresses: for each rank the result of its `Answers.listen`.
        host_of: for each rank the number of its host.
        rank: the number of this rank.

    Attributes:
        is_first: whether this rank is the first of its host, whose helper process answers.
    """

    def __init__(self, addresses: Sequence[str], host_of: Sequence[int], rank: int) -> None:
        self._own = host_of[rank]
        self._hosts: dict[int, Watcher] = {}
        firsts = {host: rank for rank, host in reversed([*enumerate(host_of)])}
        for host, first in firsts.items():
            token, _, at = addresses[first].partition(" ") if host != self._own else ("", "", "")
            if at:
                self._hosts[host] = Watcher(at, token, status_server.ABOUT)
        self.is_first = firsts[self._own] == rank

    def wait_before(self, limit: float) -> bool:
        """Whether a rank of a host before this one waits without progress, and will report."""
        return any(
            status_query.waits(watcher, limit)
            for host, watcher in sorted(self._hosts.items())
            if host < self._own
        )

    def look(self) -> Views:
        """Asks all these hosts at once; returns the snapshots of those that answer."""
        if not self._hosts:
            return {}
        try:
            with ThreadPoolExecutor(min(_AT_ONCE, len(self._hosts))) as pool:
                seen = list(pool.map(status_query.look, self._hosts.values()))
        except RuntimeError:  # the interpreter ends, and starts no more threads
            return {}
        return {each.rank: each for host in seen for each in host}
