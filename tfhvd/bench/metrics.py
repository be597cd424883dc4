"""Times and bandwidths, with the meaning that nccl-tests gives them. Pure functions."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class Times:
    """What many repetitions took, in seconds.

    Attributes:
        count: how many repetitions there were.
        least: of the fastest.
        median: half took less.
        p99: 99 of 100 took less; of fewer than 100 repetitions, the slowest.
        processor: processor time of one repetition, the mean, on the rank that used most; None if
            it was not measured.
        switches: context switches of one repetition, likewise.
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
        # The smallest value that at least 99% of all do not exceed.
        at = -(-99 * len(ordered) // 100) - 1
        median = statistics.median(ordered)
        return cls(len(ordered), ordered[0], median, ordered[at], processor, switches)


# Of the bytes S that a collective is said to have, the part that each rank's link must carry.
_BUS_FACTORS = {
    "allreduce": lambda n: 2 * (n - 1) / n,
    "allgather": lambda n: (n - 1) / n,
    "reducescatter": lambda n: (n - 1) / n,
    "alltoall": lambda n: (n - 1) / n,
    "broadcast": lambda n: 1.0 if n > 1 else 0.0,
}


def algorithm_bandwidth(size: int, seconds: float) -> float:
    """Returns GB/s: the bytes of the collective over its time.

    Example:
        >>> algorithm_bandwidth(2_000_000_000, 0.5)
        4.0
    """
    return size / seconds / 1e9


def bus_bandwidth(collective: str, size: int, seconds: float, ranks: int) -> float:
    """Returns GB/s that are comparable between collectives and numbers of ranks.

    The algorithm bandwidth, times the part of the bytes that every rank's link has to carry,
    whatever the algorithm: 2(n-1)/n for allreduce, (n-1)/n for allgather, reducescatter and
    alltoall, 1 for broadcast. Nothing at all where there is one rank.

    Example:
        >>> bus_bandwidth("allreduce", 4_000_000_000, 1.0, 4)
        6.0
    """
    return algorithm_bandwidth(size, seconds) * _BUS_FACTORS[collective](ranks)
