"""Asks who watches the ranks of a running job what is seen of them, and answers that.

A launcher sees those of all hosts; a rank that has none sees those of its own.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tfhvd.launch import address, environment, handshake, wire
from tfhvd.watch import snapshot
from tfhvd.watch.hang_watch import Views
from tfhvd.watch.snapshot import Snapshot

_LIMIT = 10.0  # seconds for an answer
_TO_CONNECT = 2.0
FAILURES = (OSError, ValueError, KeyError, TypeError, wire.WireError)


@dataclass(frozen=True)
class Watcher:
    """Where it listens, and what those must know who ask.

    Attributes:
        addresses: "host:port,...", those by which other hosts reach it.
        token: its secret.
        about: what listens there; see handshake.
    """

    addresses: str
    token: str
    about: str = wire.ABOUT


def launcher_of(environ: Mapping[str, str]) -> Watcher | None:
    """The launcher of a process, by its environment: mpirun's or a worker's."""
    addresses = environ.get(environment.ADDRESS)
    return Watcher(addresses, environ.get(environment.TOKEN, "")) if addresses else None


def look(watcher: Watcher) -> list[Snapshot]:
    """Takes a look at all ranks that it sees, in their order.

    Returns:
        Nothing where it cannot be reached.
    """
    for at in address.pairs(watcher.addresses):
        with contextlib.suppress(*FAILURES), socket.create_connection(at, _TO_CONNECT) as sock:
            handshake.prove(sock, watcher.token, watcher.about)
            sock.sendall(wire.frame_json(wire.ASK))
            views = [wire.read_json(each) for kind, each in _answers(sock) if kind == wire.VIEW]
            return sorted(map(snapshot.of_fields, views), key=lambda seen: seen.rank)
    return []


def waits(watcher: Watcher, limit: float) -> bool:
    """Whether a rank that it sees has waited in vain; False where it cannot be reached.

    Args:
        watcher: who is asked.
        limit: for how many seconds.
    """
    for at in address.pairs(watcher.addresses):
        with contextlib.suppress(*FAILURES), socket.create_connection(at, _TO_CONNECT) as sock:
            handshake.prove(sock, watcher.token, watcher.about)
            sock.sendall(wire.frame_json(wire.ASK, limit=limit))
            return any(kind == wire.STUCK for kind, _ in _answers(sock))
    return False


def answer_one(
    sock: socket.socket,
    look: Callable[[], Views],
    waits: Callable[[float], bool],
    patience: float,
) -> None:
    """Answers the question that comes over a connection.

    Args:
        sock: the connection, of who knows the token.
        look: takes a look at all ranks that are seen.
        waits: whether one of them has waited in vain for so many seconds.
        patience: seconds for the question to come.

    Raises:
        One of FAILURES: if it does not come, or is none.
    """
    kind, payload = next(_frames(sock, patience))
    asked = wire.read_json(payload)
    if kind != wire.ASK:
        raise wire.WireError("this is no question")
    sock.settimeout(_LIMIT)
    if "limit" not in asked:
        answer(sock.sendall, look())
    else:
        stuck = wire.frame(wire.STUCK) if waits(float(asked["limit"])) else b""
        sock.sendall(stuck + wire.frame(wire.QUIT))


def answer(send: Callable[[bytes], None], views: Views) -> None:
    """Sends what was seen."""
    for seen in views.values():
        send(wire.frame_json(wire.VIEW, **snapshot.as_fields(seen)))
    send(wire.frame(wire.QUIT))


def _answers(sock: socket.socket) -> list[tuple[bytes, bytes]]:
    """The frames before the one that ends the answer."""
    return list(itertools.takewhile(lambda frame: frame[0] != wire.QUIT, _frames(sock, _LIMIT)))


def _frames(sock: socket.socket, limit: float) -> Iterator[tuple[bytes, bytes]]:
    """The frames that come within ``limit`` seconds."""
    reader = wire.Reader()
    deadline = time.monotonic() + limit
    while True:
        sock.settimeout(max(0.1, deadline - time.monotonic()))
        data = sock.recv(1 << 16)
        if not data:
            raise wire.WireError("the connection is closed")
        yield from reader.feed(data)
