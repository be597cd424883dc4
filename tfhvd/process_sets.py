"""Process sets: which ranks take part in a collective. No TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class ProcessSet:
    """Some of the job's ranks.

    It can be used once all ranks have registered it, by `hvd.init(process_sets=[...])` or
    `hvd.add_process_set`, and until they remove it or shut down.

    Attributes:
        ranks: the ranks in it, ascending; None for all ranks of the job.
        process_set_id: the number by which all ranks know the set; None where it is not registered.

    Example:
        >>> even = hvd.add_process_set(range(0, hvd.size(), 2))
        >>> if even.included():
        ...     total = hvd.allreduce(x, process_set=even)
    """

    def __init__(self, ranks: Sequence[int] | Any | None = None) -> None:
        """Names the ranks.

        Args:
            ranks: the ranks, or an mpi4py communicator of them: each rank gives the one that it is
                in, so that one call can make several sets, as `COMM_WORLD.Split` does.

        Raises:
            TypeError: if they are no whole numbers.
            ValueError: if there are none, one is negative or named twice.
        """
        self.ranks: tuple[int, ...] | None = None
        self.process_set_id: int | None = None
        self._several = False  # the ranks of the job name different sets at this place
        if ranks is None:
            return
        if hasattr(ranks, "Get_group"):
            self._several = True
            ranks = _ranks_of(ranks)
        try:
            self.ranks = tuple(sorted(rank.__index__() for rank in ranks))
        except (AttributeError, TypeError):
            raise TypeError(
                f"Received: ranks={ranks!r}. Expected: whole numbers, or a communicator of mpi4py."
            ) from None
        if not self.ranks or len(set(self.ranks)) != len(self.ranks) or self.ranks[0] < 0:
            raise ValueError(
                f"A process set names each of its ranks once. Received: {list(ranks)}. "
                "Expected: different numbers, 0 or above; at least one."
            )

    def size(self) -> int:
        """Returns the number of ranks in the set."""
        return len(self.ranks) if self.ranks is not None else _process().size()

    def rank(self) -> int:
        """Returns this process's place in the set, -1 where it is not in it."""
        if self.ranks is None:
            return _process().rank()
        return self.ranks.index(_process().rank()) if self.included() else -1

    def included(self) -> bool:
        """Returns whether this process is in the set."""
        return self.ranks is None or _process().rank() in self.ranks

    def __repr__(self) -> str:
        ranks = "all ranks" if self.ranks is None else list(self.ranks)
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={ranks})"


global_process_set = ProcessSet()
global_process_set.process_set_id = 0

_registered: dict[int, ProcessSet] = {}  # by number; without the set of all ranks


def add_process_set(process_set: ProcessSet | Sequence[int] | Any) -> ProcessSet:
    """Registers a process set, so that collectives can be given it.

    Every rank of the job calls it, also those outside of the set, at the same place among such
    calls. Sets may overlap.

    Args:
        process_set: a ProcessSet, or what one is made of: ranks, or an mpi4py communicator.

    Returns:
        The process set, registered.

    Raises:
        NotInitializedError: before `init`.
        InvalidSettingError: on every rank, if the ranks name different sets, there is a set of
            these ranks already, or one of them is no rank of the job.
        PeerLostError: if a rank is lost or has left.

    Example:
        >>> first_half = hvd.add_process_set(range(hvd.size() // 2))
    """
    process = _process()
    process.check_running()
    if not isinstance(process_set, ProcessSet):
        process_set = ProcessSet(process_set)
    if process_set.process_set_id is not None:
        raise ValueError(
            f"The process set is registered already. Received: {process_set!r}. "
            "Expected: a new one."
        )
    for ranks in _all_named(process_set):
        number = process.native().add_process_set(list(ranks))
        registered = process_set if ranks == process_set.ranks else ProcessSet(ranks)
        registered.process_set_id = number
        _registered[number] = registered
    return process_set


def remove_process_set(process_set: ProcessSet) -> bool:
    """Removes a process set that `add_process_set` or `init` registered.

    Every rank of the job calls it, at the same place among such calls. Collectives of the set that
    are not done by then fail.

    Args:
        process_set: the set; may be registered anew later.

    Returns:
        True; False for what is not registered, and for the set of all ranks.

    Raises:
        NotInitializedError: before `init`.
        InvalidSettingError: on every rank, if the ranks remove different sets.
        PeerLostError: if a rank is lost or has left.

    Example:
        >>> hvd.remove_process_set(first_half)
        True
    """
    process = _process()
    process.check_running()
    if not process_set.process_set_id:  # None, or 0
        return False
    for ranks in _all_named(process_set):
        number = process.native().remove_process_set(list(ranks))
        _registered.pop(number).process_set_id = None
    return True


def get_process_set_ids_and_ranks() -> dict[int, list[int]]:
    """Returns the ranks of every process set, by its number.

    Raises:
        NotInitializedError: before `init`.

    Example:
        >>> hvd.get_process_set_ids_and_ranks()
        {0: [0, 1], 1: [1]}
    """
    process = _process()
    process.check_running()
    return process.native().process_sets()


def by_id(number: int) -> ProcessSet:
    """Returns the process set of that number, for gradients: an operation knows the number only."""
    return global_process_set if number == 0 else _registered[number]


def checked_id(process_set: ProcessSet) -> int:
    """Returns the number of a process set that an operation is given.

    Raises:
        TypeError: if it is no process set.
        ValueError: if it is not registered, or this rank is not in it.
    """
    if not isinstance(process_set, ProcessSet):
        raise TypeError(f"Received: process_set={process_set!r}. Expected: a hvd.ProcessSet.")
    if process_set.process_set_id is None:
        raise ValueError(
            f"The process set is not registered. Received: process_set={process_set!r}. Expected: "
            "one that all ranks gave to hvd.init(process_sets=[...]) or hvd.add_process_set(...)."
        )
    if process_set.ranks is not None and not process_set.included():
        raise ValueError(
            f"This rank is not in the process set. Received: process_set={process_set!r} on rank "
            f"{_process().rank()}. Expected: a call on its ranks only (if process_set.included())."
        )
    return process_set.process_set_id


def forget_all() -> None:
    """Makes every set unregistered: the job is over. For `tfhvd.process`."""
    for process_set in _registered.values():
        process_set.process_set_id = None
    _registered.clear()


def _all_named(process_set: ProcessSet) -> list[tuple[int, ...]]:
    """The sets that the ranks name at this place: one, or one each where it was a communicator."""
    if not process_set._several:
        return [process_set.ranks or ()]
    from mpi4py import MPI

    named = MPI.COMM_WORLD.allgather(process_set.ranks)
    return sorted(set(named))


def _ranks_of(communicator: Any) -> list[int]:
    from mpi4py import MPI

    group = communicator.Get_group()
    everyone = MPI.COMM_WORLD.Get_group()
    return MPI.Group.Translate_ranks(group, list(range(group.Get_size())), everyone)


def _process() -> Any:
    from tfhvd import process

    return process
