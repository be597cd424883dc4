"""What the launcher looks for from time to time: stopped ranks, and lost hosts."""

from __future__ import annotations

from collections.abc import Iterable

from tfhvd.launch import wire
from tfhvd.launch.ending import Rank
from tfhvd.launch.peer import Peer
from tfhvd.launch.peers import Peers

# Of an elastic job: seconds until a host that is cut off is lost, and between two looks. A little
# less than a multiple of these: else it is left to chance which look finds it.
_CUT_OFF, _BEAT = 1.9, 0.5


class Rounds:
    """Looks when it is time.

    Args:
        peers: the connections, whose owner it does not become.
        elastic: whether the job goes on without lost ranks, so that it is to know of them soon.
        stopped_limit: seconds until a rank that is stopped (SIGSTOP) is killed, once another rank
            has come to its end and waits for it; 0: never.
        evict_after: seconds until one is killed in any case; 0: never.
    """

    def __init__(
        self, peers: Peers, *, elastic: bool, stopped_limit: float, evict_after: float
    ) -> None:
        self._peers = peers
        self._elastic = elastic
        self._stopped_limit = stopped_limit
        self._evict_after = evict_after
        self._stopped_at = 0.0  # when to look for stopped ranks again
        self._lost_at = 0.0  # when to look for lost hosts again

    def tick(self, now: float, ranks: Iterable[Rank]) -> list[Peer]:
        """Returns the connections whose host is lost; the others ask for what is to be done."""
        if self._stopped_limit and now >= self._stopped_at:
            self._stopped_at = now + max(1.0, self._stopped_limit / 4)
            self._look_for_stopped(ranks)
        if now < self._lost_at:
            return []
        self._lost_at = now + (_BEAT if self._elastic else 1.0)
        lost = self._peers.with_lost_host(_CUT_OFF if self._elastic else wire.LOST_AFTER, now)
        if self._elastic:
            self._peers.tell(wire.frame(wire.BEAT))
        if self._evict_after:
            self._peers.tell(wire.frame_json(wire.LOOK, limit=self._evict_after))
        return lost

    def _look_for_stopped(self, ranks: Iterable[Rank]) -> None:
        """Looks at the ranks that others, which have come to their end, wait for."""
        waiting = [rank for rank in ranks if rank.left_at is not None or rank.ending is not None]
        for peer in self._peers.running():
            if waiting not in ([], [peer.rank]):
                peer.send(wire.frame_json(wire.LOOK, limit=self._stopped_limit))
