"""The launcher's periodic checks: for stopped ranks and for failed hosts."""

from __future__ import annotations

from collections.abc import Iterable

from tfhvd.launch.state.rank_state import Rank
from tfhvd.launch.supervisor.connection import Connection
from tfhvd.launch.supervisor.connections import Connections
from tfhvd.protocol import messages
from tfhvd.protocol.messages import FrameKind

# In an elastic job: seconds until a host without contact has failed, and between two checks. The
# first is a little less than a multiple of the second: chance does not decide which check finds it.
_CUT_OFF, _BEAT = 1.9, 0.5


class Liveness:
    """The checks, each made when it is due.

    Args:
        peers: the connections to the agents; not owned.
        elastic: whether the job continues without failed ranks, and must know of them soon.
        stopped_limit: seconds until a rank that is stopped (SIGSTOP) is killed, once another rank
            has reached its end and waits for it; 0: never.
        evict_after: seconds until a stopped rank is killed in any case; 0: never.
    """

    def __init__(
        self, peers: Connections, *, elastic: bool, stopped_limit: float, evict_after: float
    ) -> None:
        self._connections = peers
        self._elastic = elastic
        self._stopped_limit = stopped_limit
        self._evict_after = evict_after
        self._stopped_at = 0.0  # when the next check for stopped ranks is due
        self._lost_at = 0.0  # when the next check for failed hosts is due

    def tick(self, now: float, ranks: Iterable[Rank]) -> list[Connection]:
        """Make the checks that are due; return the connections to failed hosts."""
        if self._stopped_limit and now >= self._stopped_at:
            self._stopped_at = now + max(1.0, self._stopped_limit / 4)
            self._look_for_stopped(ranks)
        if now < self._lost_at:
            return []
        self._lost_at = now + (_BEAT if self._elastic else 1.0)
        lost = self._connections.lost(_CUT_OFF if self._elastic else messages.LOST_AFTER, now)
        if self._elastic:
            self._connections.tell(messages.frame(FrameKind.HEARTBEAT))
        if self._evict_after:
            self._connections.tell(
                messages.frame_json(FrameKind.KILL_IF_STOPPED, limit=self._evict_after)
            )
        return lost

    def _look_for_stopped(self, ranks: Iterable[Rank]) -> None:
        """Ask for stopped ranks if others have reached their end and wait for them."""
        waiting = [rank for rank in ranks if rank.left_at is not None or rank.ending is not None]
        for peer in self._connections.running():
            if waiting not in ([], [peer.rank]):
                peer.send(messages.frame_json(FrameKind.KILL_IF_STOPPED, limit=self._stopped_limit))
