"""Encrypted connections: TLS of the standard library, without certificates.

There are no certificates, because no authority could sign one for a job. So TLS alone does not
identify the other side; the handshake after it does (see handshake). Both sides sign the binding of
their TLS session there, which is different for each session. An attacker in the middle has a
separate session with each side, and neither side accepts a signature from the session of the other.

Only processes that encrypt import this module, because OpenSSL takes some time to load.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import select
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

# A cipher of TLS 1.2, the last version that has ciphers without certificates. OpenSSL offers such
# a cipher only at its lowest security level, because it trusts certificates alone.
_CIPHER = "AECDH-AES256-SHA"
_AT_ONCE = 1 << 20  # bytes that are encrypted before another thread may receive

_Result = TypeVar("_Result")


class EncryptedSocket(ssl.SSLSocket):
    """A socket that encrypts its data. One thread may send while another thread receives.

    After `recv` of 16 KiB or more, OpenSSL holds no received bytes, which a selector would not see.
    """

    # The inner socket never blocks: two threads must not be inside OpenSSL for one connection.
    _limit: float | None = None
    _inside: threading.Lock

    def __new__(cls, *args: Any, **kwargs: Any) -> EncryptedSocket:
        """Creates a socket as the standard library does, with a lock."""
        made = super().__new__(cls, *args, **kwargs)
        made._inside = threading.Lock()
        return made

    def settimeout(self, value: float | None) -> None:
        """Sets the timeout, as for any socket."""
        self._limit = value
        super().settimeout(0.0)

    def gettimeout(self) -> float | None:
        """Returns the timeout, as for any socket."""
        return self._limit

    def setblocking(self, flag: bool) -> None:
        """Sets blocking mode, as for any socket."""
        self.settimeout(None if flag else 0.0)

    def agree(self) -> bytes:
        """Makes the TLS handshake with the other side; returns the binding of the session.

        Raises:
            OSError: if the handshake fails, or the connection is closed.
        """
        self._wait_for(super().do_handshake)
        binding = self.get_channel_binding("tls-unique")
        if not binding or self.session_reused:
            raise ConnectionError("the session is not a new one of TLS 1.2")
        return binding

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        """Receives bytes, as for any socket; MSG_DONTWAIT is the only supported flag."""
        now = bool(flags & socket.MSG_DONTWAIT)
        return self._wait_for(lambda: super(EncryptedSocket, self).recv(buflen), now=now)

    def recv_into(self, buffer: Any, nbytes: int | None = None, flags: int = 0) -> int:
        """Receives bytes into a buffer, as for any socket."""
        return self._wait_for(lambda: super(EncryptedSocket, self).recv_into(buffer, nbytes, flags))

    def send(self, data: Any, flags: int = 0) -> int:
        """Sends bytes, as for any socket."""
        return self._wait_for(lambda: super(EncryptedSocket, self).send(data, flags))

    def sendall(self, data: Any, flags: int = 0) -> None:
        """Sends all bytes, as for any socket."""
        with memoryview(data) as view, view.cast("B") as whole:
            for start in range(0, len(whole), _AT_ONCE):
                self.send(whole[start : start + _AT_ONCE], flags)

    def _wait_for(self, operation: Callable[[], _Result], *, now: bool = False) -> _Result:
        until = None if self._limit is None else time.monotonic() + self._limit
        while True:
            with self._inside:
                try:
                    return operation()
                except ssl.SSLWantReadError:
                    what = select.POLLIN
                except ssl.SSLWantWriteError:
                    what = select.POLLOUT
            if now or self._limit == 0.0:
                raise BlockingIOError("nothing of it can be done yet")
            left = None if until is None else max(0.0, until - time.monotonic())
            if not _comes(self.fileno(), what, left):
                raise socket.timeout("timed out")


def _comes(descriptor: int, what: int, limit: float | None) -> bool:
    if descriptor < 0:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    poll = select.poll()
    poll.register(descriptor, what)
    return bool(poll.poll(None if limit is None else 1000.0 * limit))


def check() -> None:
    """Raises OSError if this Python cannot encrypt."""
    for listens in (False, True):
        _context(listens)


def encrypted(sock: socket.socket, *, listens: bool) -> EncryptedSocket:
    """Returns an encrypted connection; both sides must call `agree` next.

    Args:
        sock: the plain connection, which must not be used afterwards.
        listens: whether this is the listening side.
    """
    limit = sock.gettimeout()
    made = _context(listens).wrap_socket(sock, server_side=listens, do_handshake_on_connect=False)
    assert isinstance(made, EncryptedSocket)
    made.settimeout(limit)
    return made


@functools.cache
def _context(listens: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if listens else ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.sslsocket_class = EncryptedSocket
    # A session must not be resumed or renegotiated, which would give it another binding.
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    with _naming_what_is_missing():
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(f"{_CIPHER}:@SECLEVEL=0")
    if _CIPHER not in {each["name"] for each in context.get_ciphers()}:
        raise ConnectionError(_missing())
    return context


@contextlib.contextmanager
def _naming_what_is_missing() -> Iterator[None]:
    try:
        yield
    except (ssl.SSLError, ValueError) as error:
        raise ConnectionError(_missing()) from error


def _missing() -> str:
    return f"{ssl.OPENSSL_VERSION} of {sys.executable} lacks {_CIPHER} of TLS 1.2"
