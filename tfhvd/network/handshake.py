"""The handshake by which two processes of a job prove to each other that they know its token.

The token itself never travels. Every listener begins with a handshake; see listener. Ranks that
connect to each other make the same handshake in C++ (cc/backends/tcp/tcp_door.h), with a derived
token. The connecting side sends a greeting, the listening side an answer, and the connecting side a
proof:

    greeting  36 bytes  MAGIC (8), about (12), nonce (16)
    answer    48 bytes  nonce (16), HMAC-SHA256(token, "S" + greeting + that nonce + binding) (32)
    proof     32 bytes  HMAC-SHA256(token, "C" + greeting + the answer's nonce + binding)

`about` is the name of the listener, such as "launcher", padded with zero bytes. A nonce is random
and used once, so that a recording proves nothing. The listener decides about the messages after the
proof. They can be signed with the key of the connection, which is
HMAC-SHA256(token, "K" + greeting + the answer's nonce + binding). If the connection is encrypted
(see tls), the binding is the channel binding of the TLS session around the handshake, else empty.
"""

from __future__ import annotations

import hmac
import os
import socket
import time

MAGIC = b"tfhvd 2\n"
GREETING, ANSWER, PROOF = 36, 48, 32  # bytes
LIMIT = 10.0  # seconds in which each side must prove that it knows the token

_ABOUT, _NONCE = 12, 16


class HandshakeError(ConnectionError):
    """The other side does not know the token, or speaks another protocol."""


class Listening:
    """The listening side of one connection: bytes in, bytes out.

    Args:
        token: the token of the job.
        about: the name of the listener.
        binding: the binding of the connection, if it is encrypted.

    Attributes:
        key: the key of the connection; b"" until the other side has proved that it knows the token.
    """

    def __init__(self, token: str, about: str, binding: bytes = b"") -> None:
        self._token = token.encode()
        self._about = about
        self._binding = binding
        self._greeting = b""
        self._nonce = b""
        self.key = b""
        self._came = b""

    @property
    def missing(self) -> int:
        """The number of bytes of the handshake that the other side sends next."""
        return (PROOF if self._nonce else GREETING) - len(self._came)

    def feed(self, data: bytes) -> bytes:
        """Takes at most `missing` bytes; returns the bytes to send to the other side.

        Raises:
            HandshakeError: if the other side does not know the token.
        """
        self._came += data
        if self.missing:
            return b""
        came, self._came = self._came, b""
        if self._nonce:
            if not hmac.compare_digest(came, self._signed(b"C")):
                raise HandshakeError("the proof is wrong")
            self.key = self._signed(b"K")
            return b""
        if not came.startswith(MAGIC + _named(self._about)):
            raise HandshakeError("this is no greeting")
        self._greeting, self._nonce = came, os.urandom(_NONCE)
        return self._nonce + self._signed(b"S")

    def _signed(self, who: bytes) -> bytes:
        return _sign(self._token, who, self._greeting, self._nonce + self._binding)


def prove(
    sock: socket.socket, token: str, about: str, limit: float = LIMIT, binding: bytes = b""
) -> bytes:
    """Makes the handshake on the connecting side.

    Args:
        sock: the connection.
        token: the token of the job.
        about: the name of the listener.
        limit: seconds for the answer.
        binding: the binding of the connection, if it is encrypted.

    Returns:
        The connection's key.

    Raises:
        HandshakeError: if the listener does not know the token.
        OSError: if the listener has not answered in time, or the connection is closed.
    """
    secret, greeting = token.encode(), MAGIC + _named(about) + os.urandom(_NONCE)
    before = sock.gettimeout()
    sock.settimeout(limit)
    sock.sendall(greeting)
    answer, until = b"", time.monotonic() + limit
    while len(answer) < ANSWER:
        sock.settimeout(max(0.001, until - time.monotonic()))
        more = sock.recv(ANSWER - len(answer))
        if not more:
            raise HandshakeError(f"the listener is not this job's {about}, or is too busy")
        answer += more
    nonce, signed = answer[:_NONCE] + binding, answer[_NONCE:]
    if not hmac.compare_digest(signed, _sign(secret, b"S", greeting, nonce)):
        raise HandshakeError(f"the listener does not know the token of this job's {about}")
    sock.sendall(_sign(secret, b"C", greeting, nonce))
    sock.settimeout(before)
    return _sign(secret, b"K", greeting, nonce)


def derived(token: str, salt: str) -> str:
    """Returns a token of 32 characters, which another token and a salt determine."""
    return hmac.digest(token.encode(), salt.encode(), "sha256").hex()[:32]


def signature(key: bytes, message: bytes) -> bytes:
    """Returns 32 bytes which prove that the sender of a message knows a key, or a token."""
    return hmac.digest(key, message, "sha256")


def _named(about: str) -> bytes:
    return about.encode().ljust(_ABOUT, b"\0")


def _sign(token: bytes, who: bytes, greeting: bytes, nonce: bytes) -> bytes:
    return signature(token, who + greeting + nonce)
