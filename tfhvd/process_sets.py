"""Process sets: which ranks take part in a collective. So far there is one, of all ranks."""

from __future__ import annotations

from collections.abc import Sequence


class ProcessSet:
    """Some of the job's ranks.

    Attributes:
        ranks: the ranks in it, ascending; None for all ranks of the job.
        process_set_id: the number by which all ranks know the set; None where it is not registered.

    Example:
        >>> hvd.global_process_set.included()
        True
    """

    def __init__(self, ranks: Sequence[int] | None = None) -> None:
        """Names the ranks.

        Raises:
            ValueError: if a rank is negative or named twice.
        """
        self.ranks: tuple[int, ...] | None = None
        self.process_set_id: int | None = None
        if ranks is None:
            return
        self.ranks = tuple(sorted(int(rank) for rank in ranks))
        if len(set(self.ranks)) != len(self.ranks) or (self.ranks and self.ranks[0] < 0):
            raise ValueError(
                f"A process set names each of its ranks once. Received: {list(ranks)}. "
                "Expected: different numbers, 0 or above."
            )

    def size(self) -> int:
        """Returns the number of ranks in the set."""
        return len(self.ranks) if self.ranks is not None else _size()

    def rank(self) -> int:
        """Returns this process's place in the set, -1 where it is not in it."""
        if self.ranks is None:
            return _rank()
        return self.ranks.index(_rank()) if self.included() else -1

    def included(self) -> bool:
        """Returns whether this process is in the set."""
        return self.ranks is None or _rank() in self.ranks

    def __repr__(self) -> str:
        ranks = "all ranks" if self.ranks is None else list(self.ranks)
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={ranks})"


def _size() -> int:
    from tfhvd import process

    return process.size()


def _rank() -> int:
    from tfhvd import process

    return process.rank()


global_process_set = ProcessSet()
global_process_set.process_set_id = 0


def checked_id(process_set: ProcessSet) -> int:
    """Returns the number of a process set that operations may be given.

    Raises:
        TypeError: if it is no process set.
        NotImplementedError: if it is one of the user's: those come in a later version.
    """
    if not isinstance(process_set, ProcessSet):
        raise TypeError(f"Received: process_set={process_set!r}. Expected: hvd.global_process_set.")
    if process_set.process_set_id is None:
        raise NotImplementedError(
            "This version of tfhvd runs collectives over all ranks only. "
            f"Received: process_set={process_set!r}. Expected: hvd.global_process_set, "
            "or no argument."
        )
    return process_set.process_set_id
