"""The connecting side of a handshake: a process of a job connects to a listener. See listener."""

from __future__ import annotations

import socket

from tfhvd.network import handshake, tokens
from tfhvd.network.acceptor import Guest


def connect(
    at: tuple[str, int],
    token: str,
    about: str,
    *,
    to_connect: float,
    to_prove: float = handshake.LIMIT,
) -> Guest:
    """Connects to a listener, and makes the handshake with it.

    Args:
        at: host and port.
        token: the token that both sides know.
        about: the name of the listener.
        to_connect: seconds for the listener's host to answer.
        to_prove: seconds for the listener to answer.

    Returns:
        The connection, which the caller owns, and its key.

    Raises:
        handshake.HandshakeError: if the listener does not know the token.
        OSError: if no process listens there, or the listener has not answered in time.
    """
    sock = socket.create_connection(at, timeout=to_connect)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.settimeout(to_prove)
        binding = b""
        if tokens.encrypts(token):
            sock, binding = _encrypted(sock, about)
        key = handshake.prove(sock, token, about, to_prove, binding)
        sock.settimeout(None)
    except BaseException:
        sock.close()
        raise
    return Guest(sock, key)


def _encrypted(sock: socket.socket, about: str) -> tuple[socket.socket, bytes]:
    from tfhvd.network import tls  # see tokens.new

    secured = tls.encrypted(sock, listens=False)
    try:
        return secured, secured.agree()
    except OSError as error:
        secured.close()
        if isinstance(error, socket.timeout):
            raise
        raise handshake.HandshakeError(
            f"the listener is not this job's {about}, or is too busy: it does not encrypt ({error})"
        ) from error
