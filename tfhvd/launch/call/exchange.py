"""Where `run` hands its function to the ranks and takes what they return.

Each rank connects once, says a token and its number, is sent the function, and sends one message
when it has come to its end. Nothing is unpickled before the token is checked. The connection stays
open in between: a rank sees by it that whoever waits for its result is gone.
"""

from __future__ import annotations

import contextlib
import hmac
import secrets
import socket
import struct
import threading
from collections.abc import Sequence

from tfhvd.launch import address

# In the environment of a rank. The prefix carries them to other hosts.
ADDRESS = "TFHVDRUN_CALL_ADDRESS"
TOKEN = "TFHVDRUN_CALL_TOKEN"

HELLO_LIMIT = 30  # seconds in which whoever connects must have said its token

_LENGTH = struct.Struct("!Q")
_HELLO = struct.Struct("!32sI")  # token, rank


class Exchange:
    """The side of `run`: serves every rank from threads of its own, until closed.

    Args:
        payload: what every rank is sent.
        remote: whether ranks may be on other hosts.
        hosts: their names.
        nics: the only network interfaces to name, if any are given.

    Attributes:
        answers: (rank, message) in the order of arrival.
    """

    def __init__(
        self, payload: bytes, *, remote: bool, hosts: Sequence[str] = (), nics: Sequence[str] = ()
    ) -> None:
        self.answers: list[tuple[int, bytes]] = []
        self._payload = payload
        self._token = secrets.token_hex(16)
        self._listener = address.listen(remote=remote)
        port = self._listener.getsockname()[1]
        self.environment = {
            ADDRESS: address.addresses(port, remote=remote, hosts=hosts, nics=nics),
            TOKEN: self._token,
        }
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        """Takes no further rank."""
        address.stop(self._listener)

    def _serve(self) -> None:
        for sock in address.connections(self._listener):
            threading.Thread(target=self._attend, args=(sock,), daemon=True).start()

    def _attend(self, sock: socket.socket) -> None:
        with sock, contextlib.suppress(OSError):
            sock.settimeout(HELLO_LIMIT)
            token, rank = _HELLO.unpack(exactly(sock, _HELLO.size))
            if not hmac.compare_digest(token, self._token.encode()):
                return
            sock.settimeout(None)
            address.detect_loss(sock)
            send(sock, self._payload)
            self.answers.append((rank, receive(sock)))
            sock.sendall(b"\0")  # the rank may end: its message is here


def join(addresses: str, token: str, rank: int) -> tuple[socket.socket, bytes]:
    """The side of a rank: returns the connection, which the caller owns, and the payload.

    Raises:
        OSError: with every address's reason, if none leads to the exchange.
    """
    reasons = []
    for host, port in address.pairs(addresses):
        try:
            sock = socket.create_connection((host, port), timeout=10)
        except OSError as error:
            reasons.append(f"{host}:{port}: {error}")
            continue
        try:
            sock.settimeout(None)
            address.detect_loss(sock)
            sock.sendall(_HELLO.pack(token.encode(), rank))
            return sock, receive(sock)
        except OSError as error:
            reasons.append(f"{host}:{port}: {error}")
            sock.close()
    raise OSError("; ".join(reasons))


def send(sock: socket.socket, message: bytes) -> None:
    """Sends a message of any length."""
    sock.sendall(_LENGTH.pack(len(message)))
    sock.sendall(message)


def receive(sock: socket.socket) -> bytes:
    """Receives a message; raises OSError where the other side is gone."""
    (length,) = _LENGTH.unpack(exactly(sock, _LENGTH.size))
    return exactly(sock, length)


def exactly(sock: socket.socket, count: int) -> bytes:
    """Receives so many bytes; raises OSError where the other side is gone."""
    data = bytearray()
    while len(data) < count:
        more = sock.recv(min(count - len(data), 1 << 20))
        if not more:
            raise ConnectionError("the other side closed the connection")
        data += more
    return bytes(data)
