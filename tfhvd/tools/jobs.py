"""The jobs that commands speak of: what can be seen of their ranks from this host.

A rank of another host is seen by the launcher, if tfhvdrun has started the job.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass

from tfhvd.hang import local_ranks, snapshot, status_query
from tfhvd.hang.flight_record import Record
from tfhvd.hang.snapshot import Snapshot
from tfhvd.launch.errors import UsageError
from tfhvd.system import procfs
from tfhvd.tools.job_names import About


@dataclass(frozen=True)
class Job:
    """A job that runs.

    Attributes:
        here: its ranks on this host, in order.
        launcher: its tfhvdrun; None if it has none.
    """

    here: tuple[local_ranks.Rank, ...]
    launcher: status_query.Watcher | None

    def look(self) -> list[Snapshot]:
        """Takes a look at all of its ranks that can be seen, in order."""
        if not self._all_are_here and self.launcher is not None:
            found = status_query.look(self.launcher)
            if found:
                return found
        now = (rank.again() for rank in self.here)
        return [snapshot.take(rank.pid, rank.record) for rank in now if rank is not None]

    @property
    def about(self) -> About | None:
        """What tells it from other jobs of this host; None if it has no rank here."""
        return About.of(self.here[0].pid) if self.here else None

    def records(self) -> list[Record]:
        """What its ranks have noted, in order: without a word to those that are on this host."""
        if self._all_are_here or self.launcher is None:
            return [rank.record for rank in self.here]
        return [seen.record for seen in self.look()]

    @property
    def _all_are_here(self) -> bool:
        return bool(self.here) and len(self.here) == self.here[0].record.size


def running(pid: int | None) -> list[Job]:
    """Finds jobs.

    Args:
        pid: a rank, or what has started the job: mpirun, tfhvdrun, a shell; None for all.

    Raises:
        UsageError: if there is none.
    """
    launchers = _launchers(pid)
    jobs: list[Job] = []
    for ranks in local_ranks.jobs() if pid is None else local_ranks.jobs_of(pid):
        # Any rank's, for one may have ended since it was found.
        own = _nearest(number for rank in ranks for number in rank.above)
        if own is None or own not in (known.launcher for known in jobs):
            jobs.append(Job(tuple(ranks), own))
    known = {job.launcher for job in jobs}
    jobs += [Job((), at) for at in launchers if at not in known]
    if jobs:
        return jobs
    if pid is None:
        raise UsageError("no job of tfhvd runs on this host, or none that you may look at.")
    raise UsageError(
        f"process {pid} is no rank of a job of tfhvd, and has started none on this host that you "
        "may look at. A rank has a record from hvd.init() to hvd.shutdown(); `tfhvd dump` without "
        "a job lists those of this host."
    )


def launcher_of(pid: int) -> status_query.Watcher | None:
    """The launcher of a process's job; None if tfhvdrun has not started it."""
    return _nearest(procfs.above(pid))


def _nearest(above: Iterable[int]) -> status_query.Watcher | None:
    """The launcher that the first of these processes has been told of which has been of one."""
    return next(filter(None, map(_told_of, above)), None)


def _told_of(number: int) -> status_query.Watcher | None:
    with contextlib.suppress(OSError):  # it has ended, or is another user's
        return status_query.launcher_of(procfs.environment_of(number))
    return None


def _launchers(pid: int | None) -> list[status_query.Watcher]:
    """The launchers of jobs that have a process on this host: of a process's own, None for all."""
    found: dict[status_query.Watcher, None] = {}
    above = set() if pid is None else set(procfs.above(pid))
    for number in procfs.all_numbers():
        launcher = _told_of(number)
        if launcher is None:
            continue
        if pid is None or number in above or pid in (number, *procfs.above(number)):
            found[launcher] = None
    return list(found)
