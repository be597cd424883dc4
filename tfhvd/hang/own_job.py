"""The ranks of one job that run on this host, as one of them sees them, or a process beside it."""

from __future__ import annotations

from tfhvd.hang import local_ranks, snapshot
from tfhvd.hang.detector import Views
from tfhvd.hang.local_ranks import Rank
from tfhvd.system import procfs

_SILENT = (*procfs.STOPPED, *procfs.ENDED)  # a process that says nothing


class ThisHost:
    """What is seen of them.

    Args:
        pid: the process of one of them.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def look(self) -> Views:
        """Takes a look at all of them."""
        seen = [snapshot.take(rank.pid, rank.record) for rank in self._ranks()]
        return {each.rank: each for each in seen}

    def waits(self, limit: float) -> bool:
        """Whether one that could say so has waited for others in vain for so many seconds."""
        return any(rank.record.waits_in_vain(limit) for rank in self._ranks_that_tell())

    def first_that_waits(self) -> int:
        """The lowest rank that waits for others, and could say what it sees; -1: there is none."""
        waiting = (rank.record.rank for rank in self._ranks_that_tell() if rank.record.waiting())
        return min(waiting, default=-1)

    def _ranks_that_tell(self) -> list[Rank]:
        # A process that was stopped is known for it at once, before its watch is missed.
        return [
            rank
            for rank in self._ranks()
            if rank.record.can_tell and procfs.state_of(rank.pid) not in _SILENT
        ]

    def _ranks(self) -> list[Rank]:
        jobs = local_ranks.jobs()
        return next((job for job in jobs if any(rank.pid == self._pid for rank in job)), [])
