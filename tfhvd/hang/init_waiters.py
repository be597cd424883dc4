"""Finds the ranks of this host that have called `init`, from their processes in /proc.

The ranks cannot ask each other before they are connected. The ranks of one job have a common
launcher, and each has its number in the environment, from the launcher.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tfhvd.hang import flight_record
from tfhvd.protocol import variables
from tfhvd.system import procfs
from tfhvd.system.formatting import ranks_text

NAME = "tfhvd-meets"  # a process has a file in memory with this name while it is in `init`

_DOES = {"R": "computes", "T": "is stopped: kill -CONT {pid}", "t": "is stopped by a debugger"}


@dataclass(frozen=True)
class Arrival:
    """A rank of this host.

    Attributes:
        pid: its process; the innermost process, if a shell or an agent has started the rank.
        state: the kernel's state of this process, such as "S".
        waits: whether the rank is in `init`, and waits for others.
        came: whether the rank has called `init`.
    """

    pid: int
    state: str
    waits: bool
    came: bool


def ranks_here(pid: int, variable: str) -> dict[int, Arrival]:
    """Finds the ranks of a process's job that run on its host, and that this user may inspect.

    Args:
        pid: the process.
        variable: the environment variable with its rank. Its launcher may have another such
            variable, as `mpirun` has in a script of a batch system.
    """
    launcher = next((each for each in procfs.above(pid) if _rank_of(each, variable) is None), 0)
    by_rank: dict[int, list[int]] = {}
    for each in procfs.all_numbers():
        rank = _rank_of(each, variable)
        if rank is not None and any(launcher == over for over in procfs.above(each)):
            by_rank.setdefault(rank, []).append(each)
    return {rank: _arrival(found) for rank, found in sorted(by_rank.items())}


def _rank_of(pid: int, variable: str) -> int | None:
    try:
        value = procfs.environment_of(pid).get(variable, "")
    except OSError:  # a process of another user, such as a batch system's daemon
        return None
    return int(value) if value.isdigit() else None


def _arrival(found: list[int]) -> Arrival:
    """Finds the rank among its processes, which include its parents and its children."""
    names = {pid: set(_files_of(pid)) for pid in found}
    came = [pid for pid in found if names[pid] & {NAME, flight_record.NAME}]
    depth = {pid: len(list(procfs.above(pid))) for pid in found}
    pid = came[0] if came else max(found, key=lambda each: (depth[each], -each))
    return Arrival(pid, procfs.state_of(pid), NAME in names[pid], bool(came))


def _files_of(pid: int) -> Iterator[str]:
    with contextlib.suppress(OSError):
        for name, _ in procfs.memory_files(pid):
            yield name


def meetings(pid: int | None) -> list[dict[int, Arrival]]:
    """Finds the jobs with ranks on this host that are in `init`.

    Args:
        pid: a rank, or a process that has started the job; None for all jobs.

    Returns:
        The ranks on this host of each job.
    """
    found: list[dict[int, Arrival]] = []
    known: set[int] = set()
    for each in procfs.all_numbers():
        over = (each, *procfs.above(each))
        if NAME not in _files_of(each) or pid not in (None, *over) or known.intersection(over):
            continue
        with contextlib.suppress(OSError):  # ended meanwhile
            variable = variables.variable_in(procfs.environment_of(each))
            ranks = ranks_here(each, variable) if variable is not None else {}
            if ranks:
                found.append(ranks)
                known.update(rank.pid for rank in ranks.values())
    return found


def missing(ranks: Mapping[int, Arrival]) -> tuple[int, ...]:
    """Returns the ranks that have not called `init`."""
    return tuple(rank for rank, found in ranks.items() if not found.came)


def text(ranks: Mapping[int, Arrival]) -> str:
    """Returns a report about the ranks of a host, one of which waits in `init`.

    Example:
        >>> text({0: Arrival(7, "S", True, True), 1: Arrival(8, "R", False, False)})[:55]
        'On this host rank 1 has not called it. It (process 8) c'
    """
    late = missing(ranks)
    if not late:
        return (
            f"All of this host ({ranks_text(ranks)}) have called it. If no other host names one of "
            "its ranks that has not, they cannot reach each other: type tfhvd doctor, with the -np "
            "and -H of the job."
        )
    first = ranks[late[0]]
    does = _DOES.get(first.state, "waits for something").format(pid=first.pid)
    have, which = ("has", "It") if len(late) == 1 else ("have", f"Rank {late[0]}")
    return (
        f"On this host {ranks_text(late)} {have} not called it. {which} (process {first.pid}) "
        f"{does}. Every rank must call hvd.init(): look at what the program does before, and for "
        "conditions that leave a rank out."
    )


@contextlib.contextmanager
def announced() -> Iterator[None]:
    """Shows other processes that this process is in `init`, until the block ends."""
    file = os.memfd_create(NAME)
    try:
        yield
    finally:
        os.close(file)
