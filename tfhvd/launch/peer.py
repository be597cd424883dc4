"""A worker's connection, as the launcher holds it."""

from __future__ import annotations

import contextlib
import socket

from tfhvd.launch import wire
from tfhvd.launch.ending import Rank


class Peer:
    """One connection; the launcher's, who closes it.

    Args:
        sock: the connection.

    Attributes:
        sock: the same.
        reader: of what comes.
        rank: the worker's; None before its hello.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.reader = wire.Reader()
        self.rank: Rank | None = None
        self._silence = wire.Silence()

    @property
    def name(self) -> str:
        """The name of the process in messages."""
        return "a process of this job" if self.rank is None else f"rank {self.rank.rank}"

    @property
    def is_here(self) -> bool:
        """Whether it comes from this host."""
        try:
            return bool(self.sock.getpeername()[0] == self.sock.getsockname()[0])
        except OSError:
            return False

    def send(self, data: bytes) -> None:
        """Sends to it; that it is gone is seen by who reads."""
        with contextlib.suppress(OSError):
            self.sock.sendall(data)

    def has_lost_host(self, after: float, now: float) -> bool:
        """Whether its host is lost; to be asked again and again.

        Args:
            after: seconds without an answer of the host's.
            now: seconds of a steady clock.
        """
        return self._silence.look(self.sock, after, now)
