"""Finds the ranks that run on this host, from their processes in /proc."""

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
    """A running rank.

    Attributes:
        pid: its process, as this process sees it; in a container, the rank sees another number.
        above: the processes that have started the rank: its parent, and so on.
        record: its flight record.
        path: the path of the flight record.
    """

    pid: int
    above: tuple[int, ...]
    record: Record
    path: Path

    def again(self) -> Rank | None:
        """Returns this rank with its present record; None if the rank has ended."""
        try:
            return dataclasses.replace(self, record=_read(self.path))
        except (OSError, flight_record.RecordError):
            return None


def jobs() -> list[list[Rank]]:
    """Finds all jobs on this host whose processes this user may inspect.

    Returns:
        For each job its ranks on this host, in order.
    """
    by_job: dict[tuple[int, int, int], list[Rank]] = {}
    for rank, container in _ranks():
        record = rank.record
        # In another container, another job's process may have the same number.
        by_job.setdefault((container, record.leader or record.pid, record.size), []).append(rank)
    return [sorted(job, key=lambda rank: rank.record.rank) for job in by_job.values()]


def jobs_of(pid: int) -> list[list[Rank]]:
    """Finds the job of a rank, or the jobs that a process has started.

    Args:
        pid: the process: a rank, mpirun, tfhvdrun, or a shell around one of them.
    """
    return [job for job in jobs() if any(pid in (rank.pid, *rank.above) for rank in job)]


def _ranks() -> Iterator[tuple[Rank, int]]:
    """Yields each rank with the number of its process namespace."""
    for pid in procfs.all_numbers():
        # The process may end meanwhile, or belong to another user.
        with contextlib.suppress(OSError, flight_record.RecordError):
            found = [path for name, path in procfs.memory_files(pid) if name == flight_record.NAME]
            if not found:  # as for nearly all processes of a host
                continue
            own_number = int(procfs.status_of(pid).get("NSpid", str(pid)).split()[-1])
            # A forked child has inherited the record of another process.
            own = [(_read(path), path) for path in found]
            own = [(record, path) for record, path in own if record.pid == own_number]
            if own:  # when the members of an elastic job change, there are two for a moment
                record, path = max(own, key=lambda each: each[0].began)
                container = procfs.namespace_of(pid)
                yield Rank(pid, tuple(procfs.above(pid)), record, path), container


def _read(path: Path) -> Record:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return flight_record.read(file)
    finally:
        os.close(file)
