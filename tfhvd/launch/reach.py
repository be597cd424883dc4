"""How a worker reaches the launcher, and another one that takes its place."""

from __future__ import annotations

import os
import socket
import time

from tfhvd.launch import address, wire

_TIMES, _PAUSE = 5, 0.2  # how often the launcher's process may end while it takes us in; seconds


class Launcher:
    """A connection to the launcher: a worker's, who is its one user.

    Args:
        addresses: where it is: ``host:port,...``, of which the first counts that welcomes us.
        token: what it wants to hear.
        rank: our rank.
        share: how many cores the rank takes, if it takes a share.
        listens_at: where it meets others, if it does so over TCP.
        may_have_another: whether another process may take the place of the one that is reached.

    Attributes:
        sock: the connection. REQUIRES: `connect` has come to its end.
        may_have_another: the same.
    """

    def __init__(
        self,
        addresses: str,
        token: str,
        rank: int,
        share: int | None,
        listens_at: str | None,
        may_have_another: bool,
    ) -> None:
        self.sock: socket.socket
        self.may_have_another = may_have_another
        self._at = list(address.pairs(addresses))
        self._hello = {"token": token, "rank": rank, "host": socket.gethostname()}
        self._hello |= {"pid": os.getpid(), "share": share, "listens_at": listens_at}
        self._reader = wire.Reader()

    def connect(self, again: dict[str, object] | None = None) -> None:
        """Reaches it.

        Args:
            again: what to say to one that takes the place of another one; see wire.

        Raises:
            OSError: with every address's reason.
        """
        hello = wire.frame_json(wire.HELLO, **self._hello, again=again)
        errors: dict[tuple[str, int], Exception] = {}
        for number in range(1 if again is None else _TIMES):
            if number:
                time.sleep(_PAUSE)
            for at in self._at:
                try:
                    self.sock = _welcomed(at, hello)
                except (OSError, wire.WireError) as error:
                    errors[at] = error
                else:
                    self._at, self._reader = [at], wire.Reader()
                    return
            if all(isinstance(error, ConnectionRefusedError) for error in errors.values()):
                break  # nobody listens there
        raise OSError("; ".join(f"{host}:{port}: {why}" for (host, port), why in errors.items()))

    def receive(self) -> list[tuple[bytes, bytes]] | None:
        """Frames that it has sent, where `sock` is readable; None once there will be no more."""
        try:
            data = self.sock.recv(4096)
            return self._reader.feed(data) if data else None
        except (OSError, wire.WireError):
            return None


def _welcomed(at: tuple[str, int], hello: bytes) -> socket.socket:
    sock = socket.create_connection(at, timeout=5)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        wire.notice_lost_hosts(sock)
        sock.sendall(hello)
        frames = wire.Reader().feed(_read_exactly(sock, len(wire.frame(wire.WELCOME))))
        if [kind for kind, _ in frames] != [wire.WELCOME]:
            raise wire.WireError("no welcome")
        sock.settimeout(None)
    except (OSError, wire.WireError):
        sock.close()
        raise
    return sock


def _read_exactly(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = sock.recv(count - len(data))
        if not more:
            raise OSError("the other side closed the connection")
        data += more
    return data
