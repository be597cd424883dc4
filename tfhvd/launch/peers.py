"""The connections of all workers, and what is said to several of them at once."""

from __future__ import annotations

import signal
from collections.abc import Collection

from tfhvd.launch import wire
from tfhvd.launch.peer import Peer
from tfhvd.launch.signals import STOPPING

_IN_GROUP = (*STOPPING, signal.SIGKILL)


class Peers:
    """The launcher's connections, whose owner it stays."""

    def __init__(self) -> None:
        self._all: set[Peer] = set()

    def __bool__(self) -> bool:
        return bool(self._all)

    def add(self, peer: Peer) -> None:
        """Another one has come."""
        self._all.add(peer)

    def discard(self, peer: Peer) -> None:
        """One is closed."""
        self._all.discard(peer)

    def all(self) -> list[Peer]:
        """All of them, also those that have not said who they are."""
        return list(self._all)

    def named(self) -> list[Peer]:
        """Those that have said who they are."""
        return [peer for peer in self._all if peer.rank is not None]

    def running(self, only: Collection[int] | None = None) -> list[Peer]:
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

    def with_lost_host(self, after: float, now: float) -> list[Peer]:
        """Those whose host is lost; to be asked again and again; see Peer.has_lost_host."""
        return [peer for peer in self._all if peer.has_lost_host(after, now)]

    def tell(self, data: bytes | None) -> list[int]:
        """Tells all workers whose ranks run, if there is anything to tell; returns these ranks."""
        running = self.running() if data is not None else []
        for peer in running:
            peer.send(data or b"")
        return [peer.rank.rank for peer in running if peer.rank is not None]

    def signal(self, number: int, only: Collection[int] | None = None) -> None:
        """Has a signal passed on to ranks: all, or `only` these."""
        data = wire.frame_json(wire.SIGNAL, signal=int(number), group=number in _IN_GROUP)
        for peer in self.running(only):
            peer.send(data)

    def quit(self) -> None:
        """Tells all workers that the job is over."""
        for peer in self._all:
            peer.send(wire.frame(wire.QUIT))
