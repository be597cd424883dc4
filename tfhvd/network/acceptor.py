"""Acceptor: accepts connections from any peer, which cost little until they are authenticated.

Until then a connection is a stranger. An acceptor holds few strangers at a time, and gives each a
limited time. While the process is short of descriptors, the acceptor accepts no connection.
"""

from __future__ import annotations

import contextlib
import errno
import resource
import selectors
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from tfhvd.network import handshake

_MOST = 64  # strangers at a time
_PART = 4  # strangers take at most one of so many descriptors of the process
_CROWDED = 0.5  # seconds for each stranger while other connections wait
_REST = 0.25  # seconds without accepting, if the process is short of descriptors
_TICK = 0.05  # seconds between two checks of the clock, while there are strangers

# Errors after which accept() may succeed again.
_SHORT = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Stranger(Protocol):
    """A connection that is not authenticated yet.

    Attributes:
        sock: the connection, which does not block.
    """

    sock: socket.socket

    def advance(self) -> bytes:
        """Reads the bytes that have arrived; returns the connection's key, b"" until it has one.

        Raises:
            OSError: if the stranger has failed to authenticate, or has closed the connection.
        """


@dataclass(frozen=True)
class Guest:
    """An authenticated connection.

    Attributes:
        sock: the connection, in blocking mode; the code that takes the guest owns it.
        key: the result of the authentication; after a handshake, the key of the connection.
    """

    sock: socket.socket
    key: bytes


class Acceptor(ABC):
    """An acceptor for one listening socket. One thread uses it; any thread may call `stop`.

    Args:
        listener: the socket, which the acceptor owns from now on.

    Attributes:
        is_open: whether there may be more guests.
    """

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        listener.setblocking(False)
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._most = _MOST if soft == resource.RLIM_INFINITY else max(1, min(_MOST, soft // _PART))
        self._strangers: dict[Stranger, float] = {}  # with the time of its arrival
        self._select = selectors.DefaultSelector()
        self._takes = False  # whether the listener is registered with the selector
        self._rests_until = 0.0
        self.is_open = True
        self._look_at_the_clock(0.0)

    @abstractmethod
    def _meet(self, sock: socket.socket) -> Stranger:
        """Returns a stranger for a new connection, which does not block."""

    @property
    def port(self) -> int:
        """The port at which the socket listens."""
        return int(self._listener.getsockname()[1])

    def fileno(self) -> int:
        """Returns a descriptor that is readable when `take` has something to do.

        Also call `take` from time to time, because the time of strangers runs out.
        """
        return self._select.fileno()

    def take(self, timeout: float = 0.0) -> list[Guest]:
        """Waits for guests, at most `timeout` seconds; returns the new guests."""
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
        """Yields every guest until `stop` is called, and then closes the acceptor."""
        with contextlib.closing(self):
            while self.is_open:
                yield from self.take(60.0)

    def stop(self) -> None:
        """Ends `guests` in another thread. After that no peer can connect."""
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
                stranger = self._meet(sock)
                self._strangers[stranger] = now
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

    def _advance(self, stranger: Stranger) -> list[Guest]:
        try:
            said = stranger.advance()
        except OSError:
            self._forget(stranger).close()
            return []
        if not said:
            return []
        sock = self._forget(stranger)
        sock.setblocking(True)
        return [Guest(sock, said)]

    def _forget(self, stranger: Stranger) -> socket.socket:
        del self._strangers[stranger]
        self._select.unregister(stranger.sock)
        return stranger.sock

    def _look_at_the_clock(self, now: float) -> None:
        is_crowded = len(self._strangers) >= self._most
        limit = _CROWDED if is_crowded else handshake.LIMIT
        late = [each for each, came_at in self._strangers.items() if now >= came_at + limit]
        for stranger in late:
            self._forget(stranger).close()
        has_room = len(self._strangers) < self._most and now >= self._rests_until
        if self.is_open and not self._takes and has_room:
            self._select.register(self._listener, selectors.EVENT_READ)
            self._takes = True
