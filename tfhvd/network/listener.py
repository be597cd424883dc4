"""Door: the listener of a job, which reads messages of a peer only after the handshake.

In the handshake a peer proves that it knows the token; see handshake. If the token says so, the
connection is encrypted before. For the resources of a peer until then see acceptor: the listener
reads no more bytes than a handshake has.
"""

from __future__ import annotations

import contextlib
import socket

from tfhvd.network import handshake, tokens
from tfhvd.network.acceptor import Acceptor


class _Stranger:
    def __init__(self, sock: socket.socket, token: str, about: str) -> None:
        self.sock = sock
        self._token, self._about = token, about
        self._handshake: handshake.Listening | None = None

    def advance(self) -> bytes:
        """Continues the handshake, as Stranger says; returns the connection's key at the end."""
        with contextlib.suppress(BlockingIOError):
            theirs = self._handshake = self._handshake or self._begun()
            data = self.sock.recv(theirs.missing)
            if not data:
                raise ConnectionError("it has broken off")
            answer = theirs.feed(data)
            if self.sock.send(answer) < len(answer):
                raise ConnectionError("it does not read")
            return theirs.key
        return b""

    def _begun(self) -> handshake.Listening:
        if not tokens.encrypts(self._token):
            return handshake.Listening(self._token, self._about)
        from tfhvd.network import tls  # see tokens.new

        if not isinstance(self.sock, tls.EncryptedSocket):
            self.sock = tls.encrypted(self.sock, listens=True)
        return handshake.Listening(self._token, self._about, self.sock.agree())


class Door(Acceptor):
    """An acceptor of the peers that know a token.

    Args:
        listener: the socket, which the door owns from now on.
        token: the token that peers must know.
        about: the name of the listener, which peers must give.

    Raises:
        OSError: if the token asks for encryption, and this Python cannot encrypt.
    """

    def __init__(self, listener: socket.socket, token: str, about: str) -> None:
        if tokens.encrypts(token):
            from tfhvd.network import tls  # see tokens.new

            tls.check()
        self._token, self._about = token, about
        super().__init__(listener)

    def _meet(self, sock: socket.socket) -> _Stranger:
        return _Stranger(sock, self._token, self._about)
