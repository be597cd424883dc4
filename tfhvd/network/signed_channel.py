"""Signed messages of any length over a connection between two processes that know a token."""

from __future__ import annotations

import hmac
import socket
import struct

from tfhvd.network import handshake

_HEAD = struct.Struct("!Q32s")  # length, signature
_PLACE = struct.Struct("!?Q")  # signed with the message: whether the listener sent it, its number


class Channel:
    """One end of the connection. One thread may send while another one receives.

    Args:
        sock: the connection, in blocking mode.
        key: its key; see handshake.
        listens: whether this is the listening side.

    Attributes:
        sock: as given.
    """

    def __init__(self, sock: socket.socket, key: bytes, *, listens: bool) -> None:
        self.sock = sock
        self._key, self._listens = key, listens
        self._sent = self._received = 0

    def send(self, message: bytes) -> None:
        """Sends a message."""
        signature = self._sign(message, self._listens, self._sent)
        self._sent += 1
        self.sock.sendall(_HEAD.pack(len(message), signature))
        self.sock.sendall(message)

    def receive(self, most: int | None = None) -> bytes:
        """Receives a message.

        Args:
            most: the largest number of bytes; None for no limit.

        Raises:
            OSError: if the connection is closed, or the message is too long or not signed.
        """
        length, signature = _HEAD.unpack(exactly(self.sock, _HEAD.size))
        if most is not None and length > most:
            raise ConnectionError(f"a message of {length} bytes is too long: {most} are expected")
        message = exactly(self.sock, length)
        if not hmac.compare_digest(
            signature, self._sign(message, not self._listens, self._received)
        ):
            raise ConnectionError("a message has the wrong signature")
        self._received += 1
        return message

    def _sign(self, message: bytes, listens: bool, number: int) -> bytes:
        return handshake.signature(self._key, _PLACE.pack(listens, number) + message)


def exactly(sock: socket.socket, count: int) -> bytes:
    """Receives `count` bytes; raises OSError if the other side has closed the connection."""
    data = bytearray()
    while len(data) < count:
        more = sock.recv(min(count - len(data), 1 << 20))
        if not more:
            raise ConnectionError("the other side closed the connection")
        data += more
    return bytes(data)
