"""Each collective as a call on a package with Horovod's API: tfhvd, or Horovod itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from types import ModuleType
from typing import Any


@dataclasses.dataclass(frozen=True)
class Collective:
    """One collective.

    Attributes:
        name: the name of the package's function.
        call: (package, tensor, name) -> the result.
        takes: (elements of the larger buffer, ranks) -> the number of elements of a rank's input.
        gives: (elements of a rank's input, rank, ranks) -> the correct result, as pairs (count,
            value), if all elements of rank r's input are r + 1.
    """

    name: str
    call: Callable[[Any, Any, str], Any]
    takes: Callable[[int, int], int]
    gives: Callable[[int, int, int], list[tuple[int, int]]]

    def size(self, itemsize: int, size: int, ranks: int) -> int:
        """Returns the bytes that are really used for `size` bytes: whole elements on each rank."""
        given = self.given(itemsize, size, ranks) * itemsize
        return given * ranks if self.name == "allgather" else given

    def given(self, itemsize: int, size: int, ranks: int) -> int:
        """Returns the number of elements of each rank's input."""
        return self.takes(max(1, size // itemsize), ranks)


def _whole(elements: int, ranks: int) -> int:
    """Returns the elements, rounded down to a multiple of the ranks, but at least one per rank."""
    return max(1, elements // ranks) * ranks


def _sum(ranks: int) -> int:
    return ranks * (ranks + 1) // 2


def _first(result: Any) -> Any:
    """Returns a result without the received splits, which some versions of alltoall add."""
    return result[0] if isinstance(result, (tuple, list)) else result


COLLECTIVES = {
    collective.name: collective
    for collective in (
        Collective(
            "allreduce",
            lambda package, x, name: package.allreduce(x, op=package.Sum, name=name),
            lambda elements, ranks: elements,
            lambda given, rank, ranks: [(given, _sum(ranks))],
        ),
        Collective(
            "allgather",
            lambda package, x, name: package.allgather(x, name=name),
            lambda elements, ranks: max(1, elements // ranks),
            lambda given, rank, ranks: [(given, r + 1) for r in range(ranks)],
        ),
        Collective(
            "broadcast",
            lambda package, x, name: package.broadcast(x, root_rank=0, name=name),
            lambda elements, ranks: elements,
            lambda given, rank, ranks: [(given, 1)],
        ),
        Collective(
            "reducescatter",
            lambda package, x, name: package.reducescatter(x, op=package.Sum, name=name),
            _whole,
            lambda given, rank, ranks: [(given // ranks, _sum(ranks))],
        ),
        Collective(
            "alltoall",
            lambda package, x, name: _first(package.alltoall(x, name=name)),
            _whole,
            lambda given, rank, ranks: [(given // ranks, r + 1) for r in range(ranks)],
        ),
    )
}


def offered_by(package: ModuleType) -> list[str]:
    """Returns the names of the collectives that a package has."""
    return [name for name in COLLECTIVES if callable(getattr(package, name, None))]
