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

    @classmethod
    def connected(cls, sock: socket.socket) -> Peer:
        """Returns the peer at the other end of a TCP connection, whose socket is set up for it."""
        sock.settimeout(10)  # for sends; a read happens only when there is something
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        wire.notice_lost_hosts(sock)
        return cls(sock)

    def sent_what_is_unreadable(self, error: Exception) -> str:
        """Returns the line that says why the connection of this peer is closed."""
        name = "a process of this job" if self.rank is None else f"rank {self.rank.rank}"
        return f"tfhvdrun: closed the connection of {name}: it sent an unreadable message: {error}"

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
