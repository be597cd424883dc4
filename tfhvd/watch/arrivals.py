"""Which ranks of this host have come to `init`, by what /proc shows of their processes.

They cannot ask each other before they have met. Those of one job have a launcher in common, and
their number in the environment that it gave them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tfhvd.watch import flight, processes

NAME = "tfhvd-meets"  # of the file in memory that a process has while it is in `init`

# Who starts a process puts its rank's number into one of these; the first that is there counts.
RANK = "TFHVDRUN_RANK"  # tfhvdrun itself
VARIABLES = (RANK, "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")


@dataclass(frozen=True)
class Arrival:
    """A rank of this host.

    Attributes:
        pid: its process: the innermost, where a shell or a worker is around it.
        state: that process's state, as the kernel says it, such as "S".
        waits: whether it is in `init`, and waits for others.
        came: whether it is, or has been.
    """

    pid: int
    state: str
    waits: bool
    came: bool


def variable_in(environ: Mapping[str, str]) -> str | None:
    """The variable with a process's rank; None where it was not started as one."""
    return next((name for name in VARIABLES if environ.get(name, "").isdigit()), None)


def ranks_here(pid: int, variable: str) -> dict[int, Arrival]:
    """Finds the ranks of a process's job that run on its host, and that this user may look at.

    Args:
        pid: the process.
        variable: that with its rank. Who has started it may have another one: so has `mpirun` in a
            script of a batch system.
    """
    launcher = next((each for each in processes.above(pid) if _rank_of(each, variable) is None), 0)
    by_rank: dict[int, list[int]] = {}
    for each in processes.all_numbers():
        rank = _rank_of(each, variable)
        if rank is not None and any(launcher == over for over in processes.above(each)):
            by_rank.setdefault(rank, []).append(each)
    return {rank: _arrival(found) for rank, found in sorted(by_rank.items())}


def _rank_of(pid: int, variable: str) -> int | None:
    try:
        value = processes.environment_of(pid).get(variable, "")
    except OSError:  # another user's, as a batch system's daemon is
        return None
    return int(value) if value.isdigit() else None


def _arrival(found: list[int]) -> Arrival:
    """Of a rank's processes: what is around it, it, and what it has started."""
    names = {pid: set(_files_of(pid)) for pid in found}
    came = [pid for pid in found if names[pid] & {NAME, flight.NAME}]
    depth = {pid: len(list(processes.above(pid))) for pid in found}
    pid = came[0] if came else max(found, key=lambda each: (depth[each], -each))
    return Arrival(pid, processes.state_of(pid), NAME in names[pid], bool(came))


def _files_of(pid: int) -> Iterator[str]:
    with contextlib.suppress(OSError):
        for name, _ in processes.memory_files(pid):
            yield name


@contextlib.contextmanager
def announced() -> Iterator[None]:
    """While it lasts, this process is seen to be in `init`."""
    file = os.memfd_create(NAME)
    try:
        yield
    finally:
        os.close(file)
