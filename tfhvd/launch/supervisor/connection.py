"""The launcher's side of the connection to an agent."""

from __future__ import annotations

import contextlib
import socket
import time

from tfhvd.launch.state.rank_state import Rank
from tfhvd.network import handshake
from tfhvd.protocol import messages
from tfhvd.protocol.messages import FrameKind


class Connection:
    """One connection; the launcher owns and closes it.

    Args:
        sock: the connection.
        first_limit: see messages.Reader.

    Attributes:
        sock: as given.
        reader: assembles the received frames.
        rank: the agent's rank; None before its HELLO.
    """

    def __init__(self, sock: socket.socket, first_limit: int = messages.LIMIT) -> None:
        self.sock = sock
        self.reader = messages.Reader(first_limit)
        self._until = time.monotonic() + handshake.LIMIT  # for the first frame
        self.rank: Rank | None = None
        self._silence = messages.Silence()

    @classmethod
    def connected(cls, sock: socket.socket, *, again: bool) -> Connection:
        """Sets up the socket of a new TCP connection; returns the Connection.

        Args:
            sock: the socket.
            again: whether the peer may be an agent that connects again, with a long first frame.
        """
        sock.settimeout(10)  # for sends; a read happens only when there is something
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        messages.notice_lost_hosts(sock)
        return cls(sock, messages.LIMIT if again else messages.FIRST_LIMIT)

    def sent_what_is_unreadable(self, error: Exception) -> str:
        """Returns the line which reports that an unreadable message closes the connection."""
        name = "a process of this job" if self.rank is None else f"rank {self.rank.rank}"
        return f"tfhvdrun: closed the connection of {name}: it sent an unreadable message: {error}"

    def receive(self) -> list[tuple[FrameKind, bytes]] | None:
        """Returns the frames that have arrived, when `sock` is readable; None at their end.

        Raises:
            messages.WireError: if the peer has sent something that is not a frame.
        """
        try:
            data = self.sock.recv(1 << 16, socket.MSG_DONTWAIT)
        except BlockingIOError:  # only a part of an encrypted record
            return []
        except OSError:
            return None
        return self.reader.feed(data) if data else None

    @property
    def is_here(self) -> bool:
        """Whether the peer is on this host."""
        try:
            return bool(self.sock.getpeername()[0] == self.sock.getsockname()[0])
        except OSError:
            return False

    def send(self, data: bytes) -> None:
        """Sends data to the peer; if the peer is gone, the next read reports it."""
        with contextlib.suppress(OSError):
            self.sock.sendall(data)

    def says_nothing(self, now: float) -> bool:
        """Returns whether the time for the peer's first frame is over, and no frame has begun."""
        return now >= self._until and not self.reader.has_begun

    def has_lost_host(self, after: float, now: float) -> bool:
        """Returns whether the peer's host has failed; call it repeatedly.

        Args:
            after: seconds without an answer from the host.
            now: seconds of a steady clock.
        """
        return self._silence.look(self.sock, after, now)
