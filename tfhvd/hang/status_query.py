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

from tfhvd.hang import snapshot
from tfhvd.hang.detector import Views
from tfhvd.hang.snapshot import Snapshot
from tfhvd.network import address, connector
from tfhvd.protocol import messages, variables
from tfhvd.protocol.messages import FrameKind

_LIMIT = 10.0  # seconds for an answer
_TO_CONNECT = 2.0
FAILURES = (OSError, ValueError, KeyError, TypeError, messages.WireError)


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
    about: str = messages.ABOUT


def launcher_of(environ: Mapping[str, str]) -> Watcher | None:
    """The launcher of a process, by its environment: mpirun's or an agent's."""
    addresses = environ.get(variables.ADDRESS)
    return Watcher(addresses, environ.get(variables.TOKEN, "")) if addresses else None


def look(watcher: Watcher) -> list[Snapshot]:
    """Takes a look at all ranks that it sees, in their order.

    Returns:
        Nothing where it cannot be reached.
    """
    for at in address.pairs(watcher.addresses):
        with contextlib.suppress(*FAILURES), _asking(watcher, at) as sock:
            sock.sendall(messages.frame_json(FrameKind.STATUS_QUERY))
            views = [
                messages.read_json(each)
                for kind, each in _answers(sock)
                if kind == FrameKind.SNAPSHOT
            ]
            return sorted(map(snapshot.of_fields, views), key=lambda seen: seen.rank)
    return []


def waits(watcher: Watcher, limit: float) -> bool:
    """Whether a rank that it sees has waited in vain; False where it cannot be reached.

    Args:
        watcher: who is asked.
        limit: for how many seconds.
    """
    for at in address.pairs(watcher.addresses):
        with contextlib.suppress(*FAILURES), _asking(watcher, at) as sock:
            sock.sendall(messages.frame_json(FrameKind.STATUS_QUERY, limit=limit))
            return any(kind == FrameKind.STALLED for kind, _ in _answers(sock))
    return False


def _asking(watcher: Watcher, at: tuple[str, int]) -> socket.socket:
    return connector.connect(at, watcher.token, watcher.about, to_connect=_TO_CONNECT).sock


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
    kind, payload = next(_frames(sock, patience, messages.FIRST_LIMIT))
    asked = messages.read_json(payload)
    if kind != FrameKind.STATUS_QUERY:
        raise messages.WireError("this is no question")
    sock.settimeout(_LIMIT)
    if "limit" not in asked:
        answer(sock.sendall, look())
    else:
        stuck = messages.frame(FrameKind.STALLED) if waits(float(asked["limit"])) else b""
        sock.sendall(stuck + messages.frame(FrameKind.QUIT))


def answer(send: Callable[[bytes], None], views: Views) -> None:
    """Sends what was seen."""
    for seen in views.values():
        send(messages.frame_json(FrameKind.SNAPSHOT, **snapshot.as_fields(seen)))
    send(messages.frame(FrameKind.QUIT))


def _answers(sock: socket.socket) -> list[tuple[FrameKind, bytes]]:
    """The frames before the one that ends the answer."""
    return list(
        itertools.takewhile(lambda frame: frame[0] != FrameKind.QUIT, _frames(sock, _LIMIT))
    )


def _frames(
    sock: socket.socket, limit: float, first_limit: int = messages.LIMIT
) -> Iterator[tuple[FrameKind, bytes]]:
    """The frames that come within ``limit`` seconds; for the other argument see messages.Reader."""
    reader = messages.Reader(first_limit)
    deadline = time.monotonic() + limit
    while True:
        sock.settimeout(max(0.1, deadline - time.monotonic()))
        data = sock.recv(1 << 16)
        if not data:
            raise messages.WireError("the connection is closed")
        yield from reader.feed(data)
