"""The handshake by which two processes of a job prove to each other that they know its token.

The token itself never travels. Every listener begins with a handshake; see listener. Ranks that
connect to each other do likewise in C++ (cc/backends/tcp/tcp_door.h), with a derived token. The
side that connects sends a greeting, the side that listens an answer, and the first one a proof:

    greeting  36 bytes  MAGIC (8), about (12), nonce (16)
    answer    48 bytes  nonce (16), HMAC-SHA256(token, "S" + greeting + that nonce + binding) (32)
    proof     32 bytes  HMAC-SHA256(token, "C" + greeting + the answer's nonce + binding)

`about` is the name of what listens, such as "launcher", filled up with zero bytes. A nonce is
random and used once, so that a recording proves nothing. What follows the proof is up to the
listener. Its messages can be signed by the key of the connection, which is
HMAC-SHA256(token, "K" + greeting + the answer's nonce + binding). The binding is that of the TLS
session which the handshake takes place in, where the connection is encrypted (see tls), else empty.
"""

from __future__ import annotations

import hmac
import os
import socket
import time

MAGIC = b"tfhvd 2\n"
GREETING, ANSWER, PROOF = 36, 48, 32  # bytes
LIMIT = 10.0  # seconds that either side has to prove itself

_ABOUT, _NONCE = 12, 16


class HandshakeError(ConnectionError):
    """The other side does not know the token, or speaks another protocol."""


class Listening:
    """The side that listens, for one connection. It takes bytes and gives bytes.

    Args:
        token: the job's.
        about: the name of what listens.
        binding: of the connection, where it is encrypted.

    Attributes:
        key: of the connection; b"" until the other side has proved itself.
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
        """How many bytes the other side sends next. Bytes after them are not the handshake's."""
        return (PROOF if self._nonce else GREETING) - len(self._came)

    def feed(self, data: bytes) -> bytes:
        """Takes at most `missing` bytes; returns what the other side is to be sent.

        Raises:
            HandshakeError: the other side does not know the token.
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
    """Proves this side to the listener of a connection, and lets the listener prove itself.

    Args:
        sock: the connection.
        token: the job's.
        about: the name of what listens.
        limit: seconds for the answer.
        binding: of the connection, where it is encrypted.

    Returns:
        The connection's key.

    Raises:
        HandshakeError: the listener does not know the token.
        OSError: the listener has not answered in time, or the connection is closed.
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
    """Returns the token of 32 characters that follows from another one and a salt."""
    return hmac.digest(token.encode(), salt.encode(), "sha256").hex()[:32]


def signature(key: bytes, message: bytes) -> bytes:
    """Returns 32 bytes that prove that the sender of a message knows a key, or a token."""
    return hmac.digest(key, message, "sha256")


def _named(about: str) -> bytes:
    return about.encode().ljust(_ABOUT, b"\0")


def _sign(token: bytes, who: bytes, greeting: bytes, nonce: bytes) -> bytes:
    return signature(token, who + greeting + nonce)
