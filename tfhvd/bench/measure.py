"""Runs several subjects in turn, in step with the other ranks, so that noise affects each."""

from __future__ import annotations

import dataclasses
import resource
import time
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Protocol

from tfhvd.bench.metrics import Times

# The number of blocks into which the repetitions of a subject are divided; the blocks of the
# subjects alternate.
_BLOCKS = 5
_FEWEST = 5


class Ranks(Protocol):
    """The part of a job that measuring needs: an exchange of numbers between all ranks."""

    rank: int
    size: int

    def gather(self, numbers: Sequence[float]) -> list[list[float]]:
        """Returns each rank's numbers, by rank; all ranks give equally many."""


class PackageRanks:
    """The ranks of a job of a package with Horovod's API."""

    def __init__(self, package: ModuleType) -> None:
        self._package = package
        self.rank: int = package.rank()
        self.size: int = package.size()

    def gather(self, numbers: Sequence[float]) -> list[list[float]]:
        """Returns each rank's numbers, by rank."""
        import tensorflow as tf

        with tf.device("CPU"):
            own = tf.constant([list(numbers)], tf.float64)
            return self._package.allgather(own, name="bench.gather").numpy().tolist()


@dataclasses.dataclass(frozen=True)
class Subject:
    """A subject to time: a name for the table, and a call that is complete when it returns."""

    name: str
    call: Callable[[], object]


@dataclasses.dataclass(frozen=True)
class Effort:
    """The length of a measurement.

    Attributes:
        repetitions: the largest number for each subject.
        seconds: the approximate limit for each subject; at least 5 repetitions are made.
    """

    repetitions: int = 200
    seconds: float = 1.0

    def count(self, one: float) -> int:
        """Returns how many repetitions to make if each takes `one` seconds."""
        affordable = int(self.seconds / max(one, 1e-9))
        return max(min(self.repetitions, affordable), min(self.repetitions, _FEWEST))


@dataclasses.dataclass(frozen=True)
class Usage:
    """The resources that all threads of this process have used.

    Attributes:
        processor: seconds of processor time.
        switches: context switches, voluntary and not.
    """

    processor: float = 0.0
    switches: int = 0

    @classmethod
    def now(cls) -> Usage:
        """Returns the usage since the process began."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        return cls(time.process_time(), used.ru_nvcsw + used.ru_nivcsw)

    def __add__(self, other: Usage) -> Usage:
        return Usage(self.processor + other.processor, self.switches + other.switches)

    def __sub__(self, other: Usage) -> Usage:
        return Usage(self.processor - other.processor, self.switches - other.switches)


def measure(subjects: Sequence[Subject], effort: Effort, ranks: Ranks) -> dict[str, Times]:
    """Times every subject, on all ranks at once.

    The time of a repetition is its time on the slowest rank. Blocks of repetitions of each subject
    alternate; the first call of a block is not counted, because ranks do not begin it together.

    Args:
        subjects: the same subjects on every rank, in the same order.
        effort: how long to measure; rank 0's clock decides on the number of repetitions.
        ranks: the ranks that measure.

    Returns:
        The times of each subject, by its name; the same on every rank. Processor time and context
        switches count all threads of the process, also those that run in the background.

    Example:
        >>> measure([Subject("MPI", lambda: comm.Allreduce(a, b))], Effort(), ranks)["MPI"].median
    """
    counts = [_estimate(subject, effort, ranks) for subject in subjects]
    seconds: list[list[float]] = [[] for _ in subjects]
    used = [Usage() for _ in subjects]
    for block in range(_BLOCKS):
        for at, (subject, count) in enumerate(zip(subjects, counts)):
            part = count * (block + 1) // _BLOCKS - count * block // _BLOCKS
            if part == 0:
                continue
            ranks.gather([0.0])
            subject.call()
            before = Usage.now()
            seconds[at] += _time(subject.call, part)
            used[at] += Usage.now() - before
    return {
        subject.name: _summary(taken, usage, ranks)
        for subject, taken, usage in zip(subjects, seconds, used)
    }


def _summary(taken: list[float], used: Usage, ranks: Ranks) -> Times:
    """Merges the measurements of a subject on all ranks: the largest of each figure."""
    slowest = [max(all_of_one) for all_of_one in zip(*ranks.gather(taken))]
    own = [used.processor / len(taken), used.switches / len(taken)]
    processor, switches = (max(all_of_one) for all_of_one in zip(*ranks.gather(own)))
    return Times.of(slowest, processor, switches)


def _estimate(subject: Subject, effort: Effort, ranks: Ranks) -> int:
    """Warms up; returns the number of repetitions for all ranks."""
    for _ in range(3):
        subject.call()
    one = min(_time(subject.call, 2))
    return effort.count(ranks.gather([one])[0][0])


def _time(call: Callable[[], object], repetitions: int) -> list[float]:
    taken = []
    for _ in range(repetitions):
        begin = time.perf_counter()
        call()
        taken.append(time.perf_counter() - begin)
    return taken
