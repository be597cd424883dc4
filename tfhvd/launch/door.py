"""The one way into each listener of a job: a peer's messages are read after it has proved itself.

A peer proves that it knows the token; see handshake. Until then it is a stranger, and costs little:
a door holds few strangers at a time, reads no more of one than a handshake has, and gives it a
limited time. While the process is short of descriptors, the door accepts nobody.
"""

from __future__ import annotations

import contextlib
import errno
import resource
import selectors
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass

from tfhvd.launch import handshake

_MOST = 64  # strangers at a time
_PART = 4  # strangers have at most one of so many descriptors of the process
_CROWDED = 0.5  # seconds that a stranger has while others wait
_REST = 0.25  # seconds without accepting, if the process is short of descriptors
_TICK = 0.05  # seconds from one look at the clock to the next, while there are strangers

# Errors after which accept() may succeed again.
_SHORT = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


@dataclass(frozen=True)
class Guest:
    """A peer that has proved that it knows the token.

    Attributes:
        sock: the connection, in blocking mode. Whoever takes the guest owns it.
        key: of the connection; see handshake.
    """

    sock: socket.socket
    key: bytes


class _Stranger:
    def __init__(self, sock: socket.socket, token: str, about: str, now: float) -> None:
        self.sock = sock
        self.came_at = now
        self._handshake = handshake.Listening(token, about)

    def advance(self) -> bytes:
        """Reads what has come; returns the connection's key, b"" before the handshake is complete.

        Raises:
            OSError: the stranger does not know the token, or has broken off.
        """
        with contextlib.suppress(BlockingIOError):
            data = self.sock.recv(self._handshake.missing)
            if not data:
                raise ConnectionError("it has broken off")
            answer = self._handshake.feed(data)
            if self.sock.send(answer) < len(answer):
                raise ConnectionError("it does not read")
        return self._handshake.key


class Door:
    """Accepts the connections of a listening socket. One thread uses it; any may call `stop`.

    Args:
        listener: the socket, which the door owns from now on.
        token: what guests know.
        about: the name of what listens, as guests call it.

    Attributes:
        is_open: whether guests may still come.
    """

    def __init__(self, listener: socket.socket, token: str, about: str) -> None:
        self._listener, self._token, self._about = listener, token, about
        listener.setblocking(False)
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._most = _MOST if soft == resource.RLIM_INFINITY else max(1, min(_MOST, soft // _PART))
        self._strangers: set[_Stranger] = set()
        self._select = selectors.DefaultSelector()
        self._takes = False  # whether the selector knows the listener
        self._rests_until = 0.0
        self.is_open = True
        self._look_at_the_clock(0.0)

    @property
    def port(self) -> int:
        """The port that the socket listens on."""
        return int(self._listener.getsockname()[1])

    def fileno(self) -> int:
        """A descriptor that is readable when `take` has something to do.

        Call `take` now and then without that as well: strangers run out of time.
        """
        return self._select.fileno()

    def take(self, timeout: float = 0.0) -> list[Guest]:
        """Waits for guests, at most `timeout` seconds, and returns those that have come."""
        guests = []
        is_idle = self._takes and not self._strangers
        for key, _ in self._select.select(timeout if is_idle else min(timeout, _TICK)):
            if key.data is None:
                self._accept()
            else:
                guests += self._advance(key.data)
        self._look_at_the_clock(time.monotonic())
        return guests

    def guests(self) -> Iterator[Guest]:
        """Yields every guest until `stop` is called, and then closes the door."""
        with contextlib.closing(self):
            while self.is_open:
                yield from self.take(60.0)

    def stop(self) -> None:
        """Ends `guests` in another thread. Nobody can connect after that."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Closes the socket, and the connections of strangers."""
        self.is_open = False
        for stranger in self._strangers:
            stranger.sock.close()
        self._strangers.clear()
        self._select.close()
        self._listener.close()

    def _accept(self) -> None:
        now = time.monotonic()
        try:
            while len(self._strangers) < self._most:
                sock, _ = self._listener.accept()
                sock.setblocking(False)
                stranger = _Stranger(sock, self._token, self._about, now)
                self._strangers.add(stranger)
                self._select.register(sock, selectors.EVENT_READ, stranger)
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as error:
            if error.errno in _SHORT:
                self._rests_until = now + _REST
            else:
                self.is_open = False
        self._select.unregister(self._listener)
        self._takes = False

    def _advance(self, stranger: _Stranger) -> list[Guest]:
        try:
            key = stranger.advance()
        except OSError:
            self._forget(stranger).close()
            return []
        if not key:
            return []
        sock = self._forget(stranger)
        sock.setblocking(True)
        return [Guest(sock, key)]

    def _forget(self, stranger: _Stranger) -> socket.socket:
        self._strangers.discard(stranger)
        self._select.unregister(stranger.sock)
        return stranger.sock

    def _look_at_the_clock(self, now: float) -> None:
        is_crowded = len(self._strangers) >= self._most
        limit = _CROWDED if is_crowded else handshake.LIMIT
        for stranger in [each for each in self._strangers if now >= each.came_at + limit]:
            self._forget(stranger).close()
        has_room = len(self._strangers) < self._most and now >= self._rests_until
        if self.is_open and not self._takes and has_room:
            self._select.register(self._listener, selectors.EVENT_READ)
            self._takes = True
