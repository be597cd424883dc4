"""The connections to all agents, and messages to several agents at once."""

from __future__ import annotations

import signal
from collections.abc import Collection

from tfhvd.launch.supervisor.connection import Connection
from tfhvd.protocol import messages
from tfhvd.protocol.messages import FrameKind
from tfhvd.system.signal_pipe import STOPPING

_IN_GROUP = (*STOPPING, signal.SIGKILL)


class Connections:
    """The launcher's connections, which the launcher still owns."""

    def __init__(self) -> None:
        self._all: set[Connection] = set()

    def __bool__(self) -> bool:
        return bool(self._all)

    def add(self, peer: Connection) -> None:
        """Adds a new connection."""
        self._all.add(peer)

    def discard(self, peer: Connection) -> None:
        """Removes a closed connection."""
        self._all.discard(peer)

    def all(self) -> list[Connection]:
        """Returns all connections, also those without a HELLO yet."""
        return list(self._all)

    def named(self) -> list[Connection]:
        """Returns the connections with a known rank."""
        return [peer for peer in self._all if peer.rank is not None]

    def running(self, only: Collection[int] | None = None) -> list[Connection]:
        """Returns the connections of ranks that have not ended.

        Args:
            only: the ranks to choose from; None: all.
        """
        return [
            peer
            for peer in self._all
            if peer.rank is not None
            and peer.rank.ending is None
            and (only is None or peer.rank.rank in only)
        ]

    def lost(self, after: float, now: float) -> list[Connection]:
        """Returns the connections with a failed host or without a first frame; call it repeatedly.

        Args:
            after: see Connection.has_lost_host.
            now: see Connection.has_lost_host.
        """
        return [
            peer for peer in self._all if peer.has_lost_host(after, now) or peer.says_nothing(now)
        ]

    def tell(self, data: bytes | None) -> list[int]:
        """Sends data, unless None, to all agents whose ranks run; returns the ranks reached."""
        running = self.running() if data is not None else []
        for peer in running:
            peer.send(data or b"")
        return [peer.rank.rank for peer in running if peer.rank is not None]

    def signal(self, number: int, only: Collection[int] | None = None) -> None:
        """Asks the agents to pass a signal to their ranks: to all, or to `only` these."""
        data = messages.frame_json(FrameKind.SIGNAL, signal=int(number), group=number in _IN_GROUP)
        for peer in self.running(only):
            peer.send(data)

    def quit(self) -> None:
        """Tells all agents that the job is over."""
        for peer in self._all:
            peer.send(messages.frame(FrameKind.QUIT))
