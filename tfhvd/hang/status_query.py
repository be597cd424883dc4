"""Status queries: a tool or a rank asks for the snapshots of a running job's ranks.

A launcher answers for the ranks of all hosts; in a job without a launcher of tfhvd, a rank's helper
process answers for the ranks of its host.
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
    """The address and the secret of a process that answers status queries.

    Attributes:
        addresses: "host:port,...", by which other hosts reach it.
        token: the secret that a client must know.
        about: the name of the service in the handshake; see handshake.
    """

    addresses: str
    token: str
    about: str = messages.ABOUT


def launcher_of(environ: Mapping[str, str]) -> Watcher | None:
    """Returns the launcher of an mpirun or an agent, from its environment; None without one."""
    addresses = environ.get(variables.ADDRESS)
    return Watcher(addresses, environ.get(variables.TOKEN, "")) if addresses else None


def look(watcher: Watcher) -> list[Snapshot]:
    """Asks a watcher for snapshots of all its ranks.

    Returns:
        The snapshots in the order of ranks; none if the watcher cannot be reached.
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
    """Whether a rank of a watcher waits without progress; False if the watcher cannot be reached.

    Args:
        watcher: the watcher to ask.
        limit: the seconds for which the rank must have waited.
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
    """Answers one query that arrives over a connection.

    Args:
        sock: the connection of a client that has proved to know the token.
        look: takes snapshots of all ranks.
        waits: returns whether a rank has waited so many seconds without progress.
        patience: seconds until the query must have arrived.

    Raises:
        One of FAILURES: if no query arrives.
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
    """Sends snapshots, and the end of the answer."""
    for seen in views.values():
        send(messages.frame_json(FrameKind.SNAPSHOT, **snapshot.as_fields(seen)))
    send(messages.frame(FrameKind.QUIT))


def _answers(sock: socket.socket) -> list[tuple[FrameKind, bytes]]:
    """Returns the frames of an answer, without its last frame QUIT."""
    return list(
        itertools.takewhile(lambda frame: frame[0] != FrameKind.QUIT, _frames(sock, _LIMIT))
    )


def _frames(
    sock: socket.socket, limit: float, first_limit: int = messages.LIMIT
) -> Iterator[tuple[FrameKind, bytes]]:
    """Yields the frames that arrive within ``limit`` seconds; for `first_limit` see Reader."""
    reader = messages.Reader(first_limit)
    deadline = time.monotonic() + limit
    while True:
        sock.settimeout(max(0.1, deadline - time.monotonic()))
        data = sock.recv(1 << 16)
        if not data:
            raise messages.WireError("the connection is closed")
        yield from reader.feed(data)
