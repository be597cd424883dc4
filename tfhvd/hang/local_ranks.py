"""Finds the ranks that run on this host, by what /proc shows of their processes."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tfhvd.hang import flight_record
from tfhvd.hang.flight_record import Record
from tfhvd.system import procfs


@dataclass(frozen=True)
class Rank:
    """A rank that runs.

    Attributes:
        pid: its process as this one sees it; in a container it has another number for itself.
        above: the processes that have started it: its parent, and so on.
        record: its flight record.
        path: where that is read from.
    """

    pid: int
    above: tuple[int, ...]
    record: Record
    path: Path

    def again(self) -> Rank | None:
        """The same rank as it is now; None where it has ended."""
        try:
            return dataclasses.replace(self, record=_read(self.path))
        except (OSError, flight_record.RecordError):
            return None


def jobs() -> list[list[Rank]]:
    """Finds all jobs of this host whose processes this user may look at.

    Returns:
        For each job its ranks here, in order.
    """
    by_job: dict[tuple[int, int, int], list[Rank]] = {}
    for rank, container in _ranks():
        record = rank.record
        # In another container, another job's process may have the same number.
        by_job.setdefault((container, record.leader or record.pid, record.size), []).append(rank)
    return [sorted(job, key=lambda rank: rank.record.rank) for job in by_job.values()]


def jobs_of(pid: int) -> list[list[Rank]]:
    """Finds the jobs of a process: a rank's own, or those that it has started.

    Args:
        pid: the process: a rank, mpirun, tfhvdrun, or a shell around one of them.
    """
    return [job for job in jobs() if any(pid in (rank.pid, *rank.above) for rank in job)]


def _ranks() -> Iterator[tuple[Rank, int]]:
    """Each with the number of the space that its own process number is of."""
    for pid in procfs.all_numbers():
        # It may end meanwhile, or be another user's.
        with contextlib.suppress(OSError, flight_record.RecordError):
            found = [path for name, path in procfs.memory_files(pid) if name == flight_record.NAME]
            if not found:  # as of nearly all processes of a host
                continue
            own_number = int(procfs.status_of(pid).get("NSpid", str(pid)).split()[-1])
            # Of another process are those that a child has which fork has made.
            own = [(_read(path), path) for path in found]
            own = [(record, path) for record, path in own if record.pid == own_number]
            if own:  # where the members of an elastic job change, there are two for a moment
                record, path = max(own, key=lambda each: each[0].began)
                container = procfs.namespace_of(pid)
                yield Rank(pid, tuple(procfs.above(pid)), record, path), container


def _read(path: Path) -> Record:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return flight_record.read(file)
    finally:
        os.close(file)
