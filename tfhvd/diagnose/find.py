"""Finds the ranks that run on this host, by what /proc shows of their processes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tfhvd.launch.errors import UsageError
from tfhvd.watch import flight, processes
from tfhvd.watch.flight import Record


@dataclass(frozen=True)
class Rank:
    """A rank that runs.

    Attributes:
        pid: its process as this one sees it; in a container it has another number for itself.
        record: its flight record.
    """

    pid: int
    record: Record


def jobs() -> list[list[Rank]]:
    """Finds all jobs of this host whose processes this user may look at.

    Returns:
        For each job its ranks here, in order.
    """
    by_job: dict[tuple[int, int], list[Rank]] = {}
    for rank in _ranks():
        record = rank.record
        by_job.setdefault((record.leader or record.pid, record.size), []).append(rank)
    return [sorted(job, key=lambda rank: rank.record.rank) for job in by_job.values()]


def job_of(pid: int) -> list[Rank]:
    """Finds the job of a process: a rank's, or one that has started it.

    Args:
        pid: the process: a rank, mpirun, tfhvdrun, or a shell around one of them.

    Raises:
        UsageError: if there is no such process, or no rank of it.
    """
    if not (processes.PROC / str(pid)).exists():
        raise UsageError(f"there is no process {pid} on this host.")
    found = [
        job for job in jobs() if any(pid in (rank.pid, *processes.above(rank.pid)) for rank in job)
    ]
    if len(found) == 1:
        return found[0]
    if found:
        some = ", ".join(str(job[0].pid) for job in found)
        raise UsageError(
            f"process {pid} has started {len(found)} jobs. Name a rank of one of them: {some}."
        )
    raise UsageError(
        f"process {pid} is no rank of a job of tfhvd, and has started none on this host that you "
        "may look at. A rank has a record from hvd.init() to hvd.shutdown(); `tfhvd dump` without "
        "a number lists those of this host."
    )


def _ranks() -> Iterator[Rank]:
    for folder in sorted(processes.PROC.iterdir()):
        if not folder.name.isdecimal():
            continue
        pid = int(folder.name)
        # It may end meanwhile, or be another user's.
        with contextlib.suppress(OSError, flight.RecordError):
            for name, path in processes.memory_files(pid):
                if name == flight.NAME:
                    record = _read(path)
                    own_number = int(processes.status_of(pid).get("NSpid", str(pid)).split()[-1])
                    if record.pid == own_number:  # else a child that fork has made
                        yield Rank(pid, record)


def _read(path: Path) -> Record:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return flight.read(file)
    finally:
        os.close(file)
