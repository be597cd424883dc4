"""The connections of all agents, and what is said to several of them at once."""

from __future__ import annotations

import signal
from collections.abc import Collection

from tfhvd.launch.supervisor.connection import Connection
from tfhvd.protocol import messages
from tfhvd.protocol.messages import FrameKind
from tfhvd.system.signal_pipe import STOPPING

_IN_GROUP = (*STOPPING, signal.SIGKILL)


class Connections:
    """The launcher's connections, whose owner it stays."""

    def __init__(self) -> None:
        self._all: set[Connection] = set()

    def __bool__(self) -> bool:
        return bool(self._all)

    def add(self, peer: Connection) -> None:
        """Another one has come."""
        self._all.add(peer)

    def discard(self, peer: Connection) -> None:
        """One is closed."""
        self._all.discard(peer)

    def all(self) -> list[Connection]:
        """All of them, also those that have not said who they are."""
        return list(self._all)

    def named(self) -> list[Connection]:
        """Those that have said who they are."""
        return [peer for peer in self._all if peer.rank is not None]

    def running(self, only: Collection[int] | None = None) -> list[Connection]:
        """Those of ranks that have not ended.

        Args:
            only: of these ranks; None: of all.
        """
        return [
            peer
            for peer in self._all
            if peer.rank is not None
            and peer.rank.ending is None
            and (only is None or peer.rank.rank in only)
        ]

    def lost(self, after: float, now: float) -> list[Connection]:
        """Those whose host is lost, and those that say nothing; to be asked again and again.

        Args:
            after: see Connection.has_lost_host.
            now: likewise.
        """
        return [
            peer for peer in self._all if peer.has_lost_host(after, now) or peer.says_nothing(now)
        ]

    def tell(self, data: bytes | None) -> list[int]:
        """Tells all agents whose ranks run, if there is anything to tell; returns these ranks."""
        running = self.running() if data is not None else []
        for peer in running:
            peer.send(data or b"")
        return [peer.rank.rank for peer in running if peer.rank is not None]

    def signal(self, number: int, only: Collection[int] | None = None) -> None:
        """Has a signal passed on to ranks: all, or `only` these."""
        data = messages.frame_json(FrameKind.SIGNAL, signal=int(number), group=number in _IN_GROUP)
        for peer in self.running(only):
            peer.send(data)

    def quit(self) -> None:
        """Tells all agents that the job is over."""
        for peer in self._all:
            peer.send(messages.frame(FrameKind.QUIT))
