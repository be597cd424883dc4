"""An agent's connection, as the launcher holds it."""

from __future__ import annotations

import contextlib
import socket
import time

from tfhvd.launch.state.rank_state import Rank
from tfhvd.network import handshake
from tfhvd.protocol import messages
from tfhvd.protocol.messages import FrameKind


class Connection:
    """One connection; the launcher's, who closes it.

    Args:
        sock: the connection.
        first_limit: see messages.Reader.

    Attributes:
        sock: the same.
        reader: of what comes.
        rank: the agent's; None before its hello.
    """

    def __init__(self, sock: socket.socket, first_limit: int = messages.LIMIT) -> None:
        self.sock = sock
        self.reader = messages.Reader(first_limit)
        self._until = time.monotonic() + handshake.LIMIT  # for the first frame
        self.rank: Rank | None = None
        self._silence = messages.Silence()

    @classmethod
    def connected(cls, sock: socket.socket, *, again: bool) -> Connection:
        """Returns the peer at the other end of a TCP connection, whose socket is set up for it.

        Args:
            sock: the connection.
            again: whether an agent may say what it has said to another launcher.
        """
        sock.settimeout(10)  # for sends; a read happens only when there is something
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        messages.notice_lost_hosts(sock)
        return cls(sock, messages.LIMIT if again else messages.FIRST_LIMIT)

    def sent_what_is_unreadable(self, error: Exception) -> str:
        """Returns the line that says why the connection of this peer is closed."""
        name = "a process of this job" if self.rank is None else f"rank {self.rank.rank}"
        return f"tfhvdrun: closed the connection of {name}: it sent an unreadable message: {error}"

    def receive(self) -> list[tuple[FrameKind, bytes]] | None:
        """Frames that it has sent, where `sock` is readable; None once there will be no more.

        Raises:
            wire.WireError: it has sent what is no frame.
        """
        try:
            data = self.sock.recv(1 << 16, socket.MSG_DONTWAIT)
        except BlockingIOError:  # a part of what is encrypted together
            return []
        except OSError:
            return None
        return self.reader.feed(data) if data else None

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

    def says_nothing(self, now: float) -> bool:
        """Whether it should have said by now who it is, or what it asks."""
        return now >= self._until and not self.reader.has_begun

    def has_lost_host(self, after: float, now: float) -> bool:
        """Whether its host is lost; to be asked again and again.

        Args:
            after: seconds without an answer of the host's.
            now: seconds of a steady clock.
        """
        return self._silence.look(self.sock, after, now)
