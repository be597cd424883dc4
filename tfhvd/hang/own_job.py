"""ThisHost: one rank, or its helper process, inspects all ranks of its job on this host."""

from __future__ import annotations

from tfhvd.hang import local_ranks, snapshot
from tfhvd.hang.detector import Views
from tfhvd.hang.local_ranks import Rank
from tfhvd.system import procfs

_SILENT = (*procfs.STOPPED, *procfs.ENDED)  # a process that cannot report anything


class ThisHost:
    """The ranks of one job on this host.

    Args:
        pid: the process of one of these ranks.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def look(self) -> Views:
        """Takes a snapshot of all these ranks."""
        seen = [snapshot.take(rank.pid, rank.record) for rank in self._ranks()]
        return {each.rank: each for each in seen}

    def waits(self, limit: float) -> bool:
        """Whether a rank that can report has waited for `limit` seconds without progress."""
        return any(rank.record.waits_in_vain(limit) for rank in self._ranks_that_tell())

    def first_that_waits(self) -> int:
        """Returns the lowest rank that waits for others, and can report it; -1 without one."""
        waiting = (rank.record.rank for rank in self._ranks_that_tell() if rank.record.waiting())
        return min(waiting, default=-1)

    def _ranks_that_tell(self) -> list[Rank]:
        # A stopped process is left out at once, although its monitor seems to run for a while.
        return [
            rank
            for rank in self._ranks()
            if rank.record.can_tell and procfs.state_of(rank.pid) not in _SILENT
        ]

    def _ranks(self) -> list[Rank]:
        jobs = local_ranks.jobs()
        return next((job for job in jobs if any(rank.pid == self._pid for rank in job)), [])
