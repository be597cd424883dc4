"""Process sets: the ranks that take part in a collective. No TensorFlow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tfhvd.errors import PeerLostError
from tfhvd.runtime.elastic.replay import comers
from tfhvd.runtime.membership import membership
from tfhvd.runtime.native import load_native

if TYPE_CHECKING:
    from typing import TypeGuard

    from tfhvd.compat.types import Communicator


class ProcessSet:
    """A set of some of the job's ranks.

    Collectives can use it after all ranks have registered it, by `hvd.init(process_sets=[...])` or
    `hvd.add_process_set`, until they remove it or shut down. In an elastic job a set ends when
    ranks fail or join, and can then be registered again.

    Attributes:
        ranks: a list of the ranks in it, ascending. For `hvd.global_process_set`, all ranks of the
            job; None before `init` and after `shutdown`.
        process_set_id: the number of the set on all ranks; None if it is not registered.

    Example:
        >>> even = hvd.add_process_set(range(0, hvd.size(), 2))
        >>> if even.included():
        ...     total = hvd.allreduce(x, process_set=even)
    """

    def __init__(self, ranks: Iterable[int] | Communicator | None = None) -> None:
        """Creates a set that is not registered yet.

        Args:
            ranks: the ranks, or an mpi4py communicator of them. Each rank passes the communicator
                that contains it, so that one call can make several sets, as `COMM_WORLD.Split`
                does.

        Raises:
            TypeError: if they are not whole numbers.
            ValueError: if there are none, or one is negative or occurs twice.
        """
        self._named: tuple[int, ...] | None = None  # None: all ranks of the job
        self.process_set_id: int | None = None
        # The ranks of a communicator, as numbers in MPI_COMM_WORLD. With a communicator, one call
        # may register different sets on different ranks.
        self._started_as: list[int] | None = None
        if ranks is None:
            return
        if is_communicator(ranks):
            self._started_as = _ranks_of(ranks)
            ranks = _in_this_job(self._started_as)
        try:
            self._named = tuple(sorted(rank.__index__() for rank in ranks))
        except (AttributeError, TypeError):
            raise TypeError(
                f"Received: ranks={ranks!r}. Expected: whole numbers, or a communicator of mpi4py."
            ) from None
        if not self._named or len(set(self._named)) != len(self._named) or self._named[0] < 0:
            raise ValueError(
                f"A process set names each of its ranks once. Received: {list(ranks)}. "
                "Expected: different numbers, 0 or above; at least one."
            )

    @property
    def ranks(self) -> list[int] | None:
        """The ranks in the set, in a new list."""
        if self._named is not None:
            return list(self._named)
        topology = membership.topology
        return None if topology is None else list(range(topology.size))

    def size(self) -> int:
        """Returns the number of ranks in the set."""
        return len(self._named) if self._named is not None else membership.require_topology().size

    def rank(self) -> int:
        """Returns this process's rank within the set, from 0; -1 if the process is not in it."""
        if self._named is None:
            return membership.require_topology().rank
        return self._named.index(membership.require_topology().rank) if self.included() else -1

    def included(self) -> bool:
        """Returns whether this process is in the set."""
        return self._named is None or membership.require_topology().rank in self._named

    def __repr__(self) -> str:
        ranks = "all ranks" if self._named is None else list(self._named)
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={ranks})"


global_process_set = ProcessSet()
global_process_set.process_set_id = 0

_registered: dict[int, ProcessSet] = {}  # by number; without the set of all ranks


def add_process_set(process_set: ProcessSet | Iterable[int] | Communicator) -> ProcessSet:
    """Registers a process set for the use in collectives.

    All ranks of the job call it, also those outside of the set, with such calls in the same order.
    Sets may overlap.

    Args:
        process_set: a ProcessSet, or an argument of ProcessSet: ranks, or an mpi4py communicator.

    Returns:
        The registered process set.

    Raises:
        NotInitializedError: before `init`.
        InvalidSettingError: on every rank, if the ranks pass different sets, if these ranks have a
            set already, or if one of them is not a rank of the job.
        PeerLostError: if a rank has failed or left.

    Example:
        >>> last = hvd.add_process_set([hvd.size() - 1])
    """
    comers.take_part()
    if not isinstance(process_set, ProcessSet):
        process_set = ProcessSet(process_set)
    if _is_registered(process_set):
        raise ValueError(
            f"{process_set!r} is already registered: use it as it is, or make a new hvd.ProcessSet."
        )
    if process_set._started_as is not None:  # the job may have begun since
        process_set._named = tuple(sorted(_in_this_job(process_set._started_as)))
    for ranks in _all_named(process_set):
        number = load_native().add_process_set(list(ranks))
        registered = process_set if ranks == process_set._named else ProcessSet(ranks)
        registered.process_set_id = number
        _registered[number] = registered
    return process_set


def has_peers(process_set: ProcessSet = global_process_set) -> bool:
    """Returns whether a set has several ranks, or may have several later.

    An elastic job may begin with one rank, or lose all other ranks, and admit ranks later. The
    functions that are traced before must reduce for all of them. Raises NotInitializedError before
    `init`.
    """
    return process_set.size() > 1 or (process_set.process_set_id == 0 and membership.is_elastic)


def remove_process_set(process_set: ProcessSet) -> bool:
    """Removes a process set that `add_process_set` or `init` registered.

    All ranks of the job call it, with such calls in the same order. Unfinished collectives of the
    set fail.

    Args:
        process_set: the set; it may be registered again later.

    Returns:
        True; False for a set that is not registered any more, and for the set of all ranks.

    Raises:
        NotInitializedError: before `init`.
        InvalidSettingError: on every rank, if the ranks remove different sets.
        PeerLostError: if a rank has failed or left.

    Example:
        >>> hvd.remove_process_set(last)
        True
    """
    comers.take_part()
    if process_set.process_set_id == 0 or not _is_registered(process_set):
        return False
    try:
        for ranks in _all_named(process_set):
            number = load_native().remove_process_set(list(ranks))
            _registered.pop(number).process_set_id = None
    except PeerLostError:
        if _is_registered(process_set):
            raise
        return False  # the set has ended meanwhile, because ranks have failed or joined
    return True


def get_process_set_ids_and_ranks() -> dict[int, list[int]]:
    """Returns the ranks of every process set, by its number.

    Raises:
        NotInitializedError: before `init`.

    Example:
        >>> hvd.get_process_set_ids_and_ranks()
        {0: [0, 1], 1: [1]}
    """
    membership.take_part()
    return load_native().process_sets()


def _is_registered(process_set: ProcessSet) -> bool:
    """Whether a set is registered; the sets of an elastic job end when ranks fail or join."""
    number = process_set.process_set_id
    return number is not None and number in load_native().process_sets()


def by_id(number: int) -> ProcessSet:
    """Returns the process set with this number; the operation of a gradient has only the number."""
    return global_process_set if number == 0 else _registered[number]


def checked_id(process_set: ProcessSet) -> int:
    """Returns the number of the process set for an operation.

    Raises:
        TypeError: if the argument is not a process set.
        ValueError: if it is not registered, or this rank is not in it.
    """
    if not isinstance(process_set, ProcessSet):
        raise TypeError(f"Received: process_set={process_set!r}. Expected: a hvd.ProcessSet.")
    if process_set.process_set_id is None:
        raise ValueError(
            f"The process set is not registered: {process_set!r}. Give it to "
            "hvd.init(process_sets=[...]) or hvd.add_process_set(...) on all ranks first."
        )
    if process_set._named is not None and not process_set.included():
        raise ValueError(
            f"This rank is not in the process set: rank {membership.require_topology().rank}, "
            f"{process_set!r}. Call on its ranks only: if process_set.included(): ..."
        )
    return process_set.process_set_id


def _forget_all() -> None:
    """Marks every set as not registered, because the job is over."""
    for process_set in _registered.values():
        process_set.process_set_id = None
    _registered.clear()


membership.at_leaving(_forget_all)


def is_communicator(thing: object) -> TypeGuard[Communicator]:
    """Whether something is a communicator of mpi4py."""
    return hasattr(thing, "Get_group")


def ranks_and_sets_of(
    comm: Sequence[int] | Communicator | Sequence[Communicator] | None,
) -> tuple[tuple[int, ...] | None, list[Communicator]]:
    """Reads the `comm` of `init`.

    Returns:
        The job's ranks in MPI_COMM_WORLD, None for all; and the communicators of process sets.

    Raises:
        TypeError: if `comm` is not a communicator, a list of ranks or a list of communicators.
        ValueError: for a communicator without this process, and for an intercommunicator.
    """
    if comm is None:
        return None, []
    if is_communicator(comm):
        return tuple(_ranks_of(comm)), []
    given = comm
    try:
        comm = list(comm)
        if comm and all(map(is_communicator, comm)):
            return tuple(_ranks_of(comm[0])), comm[1:]
        ranks = tuple(rank.__index__() for rank in comm)
    except (AttributeError, TypeError):
        raise TypeError(
            f"Received: comm={given!r}. Expected: None, a list of ranks, a communicator of mpi4py, "
            "or a list of communicators."
        ) from None
    if not ranks:
        raise ValueError(
            f"A job has at least one rank, and comm={given!r} names none; pass comm=None for all "
            "ranks, or those that take part."
        )
    return ranks, []


def _all_named(process_set: ProcessSet) -> list[tuple[int, ...]]:
    """Returns the sets that the ranks pass in one call: one set, or several with communicators."""
    if process_set._started_as is None:
        return [process_set._named or ()]
    from mpi4py import MPI

    started_as = membership.started_as
    if started_as is None:
        named = MPI.COMM_WORLD.allgather(process_set._named)
    else:
        group = MPI.COMM_WORLD.Get_group().Incl(started_as)
        job = MPI.COMM_WORLD.Create_group(group)
        named = job.allgather(process_set._named)
        job.Free()
        group.Free()
    return sorted(set(named))


def _ranks_of(communicator: Communicator) -> list[int]:
    """Returns the numbers of a communicator's ranks in MPI_COMM_WORLD, in its order."""
    from mpi4py import MPI

    if communicator == MPI.COMM_NULL or communicator.Is_inter():
        raise ValueError(
            f"tfhvd cannot use {communicator!r}; pass a communicator of mpi4py that this process "
            "is in, and no intercommunicator."
        )
    group = communicator.Get_group()
    everyone = MPI.COMM_WORLD.Get_group()
    return MPI.Group.Translate_ranks(group, list(range(group.Get_size())), everyone)


def _in_this_job(numbers: list[int]) -> list[int]:
    """Returns the job's ranks that have these numbers in MPI_COMM_WORLD."""
    started_as = membership.started_as
    if started_as is None:
        return numbers
    outside = sorted(set(numbers) - set(started_as))
    if outside:
        raise ValueError(
            f"A process set is made of ranks of the job, and the communicator has ranks {outside} "
            "of MPI_COMM_WORLD, which are not in the job; pass one with ranks of "
            f"{list(started_as)} only."
        )
    return [started_as.index(number) for number in numbers]
