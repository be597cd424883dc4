"""Times and bandwidths, with the same meaning as in nccl-tests. Pure functions."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class Times:
    """The times of many repetitions, in seconds.

    Attributes:
        count: the number of repetitions.
        least: the shortest time.
        median: the median time.
        p99: the time that 99 of 100 repetitions did not exceed; with fewer than 100 repetitions,
            the longest time.
        processor: the mean processor time of one repetition, on the rank that used most; None if
            not measured.
        switches: the mean number of context switches of one repetition, on the rank with most; None
            if not measured.
    """

    count: int
    least: float
    median: float
    p99: float
    processor: float | None = None
    switches: float | None = None

    @classmethod
    def of(
        cls,
        seconds: Sequence[float],
        processor: float | None = None,
        switches: float | None = None,
    ) -> Times:
        """Summarizes the repetitions. Raises ValueError if there are none."""
        if not seconds:
            raise ValueError("There are no repetitions to summarize.")
        ordered = sorted(seconds)
        # The smallest value that at least 99% of all times do not exceed.
        at = -(-99 * len(ordered) // 100) - 1
        median = statistics.median(ordered)
        return cls(len(ordered), ordered[0], median, ordered[at], processor, switches)


# The part of a collective's bytes that each rank's link must carry, for n ranks.
_BUS_FACTORS = {
    "allreduce": lambda n: 2 * (n - 1) / n,
    "allgather": lambda n: (n - 1) / n,
    "reducescatter": lambda n: (n - 1) / n,
    "alltoall": lambda n: (n - 1) / n,
    "broadcast": lambda n: 1.0 if n > 1 else 0.0,
}


def algorithm_bandwidth(size: int, seconds: float) -> float:
    """Returns GB/s: the bytes of the collective divided by its time.

    Example:
        >>> algorithm_bandwidth(2_000_000_000, 0.5)
        4.0
    """
    return size / seconds / 1e9


def bus_bandwidth(collective: str, size: int, seconds: float, ranks: int) -> float:
    """Returns GB/s that are comparable between collectives and numbers of ranks.

    This is the algorithm bandwidth, times the part of the bytes that every rank's link must carry
    with any algorithm: 2(n-1)/n for allreduce, (n-1)/n for allgather, reducescatter and alltoall, 1
    for broadcast. With one rank it is 0.

    Example:
        >>> bus_bandwidth("allreduce", 4_000_000_000, 1.0, 4)
        6.0
    """
    return algorithm_bandwidth(size, seconds) * _BUS_FACTORS[collective](ranks)
