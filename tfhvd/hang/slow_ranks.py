"""Finds a slow rank in flight records: the others wait for it in most steps of a running job."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tfhvd.hang import flight_record
from tfhvd.hang.flight_record import Collective, Record

_STEPS = 300  # a job reports a slow rank after so many steps
_EVERY = 5.0  # seconds between two checks
_LAST = 60.0  # a check covers the last so many seconds
_FEWEST = 10  # steps in this time
_SHARE = 0.2  # of the time: a shorter wait is not reported
_MOST_OF_IT = 0.8  # of all waits; otherwise the ranks wait for each other in turn


@dataclass(frozen=True)
class Delay:
    """A rank that is slower than another one.

    Attributes:
        rank: the slow rank.
        waiter: the rank that waits for it.
        share: the share of the time for which `waiter` waits.
        seconds: the length of this time.
        steps: the approximate number of steps of the job so far.
    """

    rank: int
    waiter: int
    share: float
    seconds: float
    steps: int

    def __str__(self) -> str:
        return (
            f"rank {self.rank} is slow: rank {self.waiter} has waited for it for {self.share:.0%} "
            f"of the last {self.seconds:.0f} s"
        )

    @property
    def notice(self) -> str:
        """The text that a job logs by itself."""
        return f"{self} (after {self.steps:,} steps). To see where it is, type: tfhvd why"

    def fields(self) -> dict[str, Any]:
        """Returns the fields for JSON: the arguments that make an equal Delay."""
        return dataclasses.asdict(self)


def of(record: Record) -> Delay | None:
    """Returns a Delay if a rank waits for one rank above all, and in at least half of its steps."""
    recent = [
        each
        for each in record.collectives
        if each.kind != "join" and each.submitted >= record.taken - _LAST
    ]
    # A step calls each name once.
    steps = max(Counter((each.kind, each.name) for each in recent).values(), default=0)
    if steps < _FEWEST:
        return None
    waits = {rank: _waits(recent, rank, record.taken) for rank in {c.waited_for for c in recent}}
    # Without the longest wait, which may be for a compilation.
    waited = {rank: sum(sorted(each)[:-1]) for rank, each in waits.items() if rank is not None}
    slow = max(waited, key=lambda rank: waited[rank], default=None)
    if slow is None or slow < 0 or slow == record.rank or len(waits[slow]) < steps / 2:
        return None
    seconds = record.taken - recent[0].submitted
    share = waited[slow] / max(seconds, 1e-9)
    if share < _SHARE or waited[slow] < _MOST_OF_IT * sum(waited.values()):
        return None
    return Delay(slow, record.rank, share, seconds, record.done * steps // len(recent))


class Watch:
    """Checks from time to time whether a rank waits for a slow rank, until it finds one."""

    def __init__(self) -> None:
        self._look_at = 0.0

    def look(self, file: int, now: float) -> Delay | None:
        """Returns the Delay once, when it is found after enough steps; otherwise None.

        Args:
            file: the record of the rank that waits.
            now: seconds of a steady clock.
        """
        if now < self._look_at:
            return None
        self._look_at = now + _EVERY
        with contextlib.suppress(OSError, flight_record.RecordError):
            found = of(flight_record.read(file))
            if found is not None and found.steps >= _STEPS:
                self._look_at = math.inf
                return found
        return None


def worst(records: Iterable[Record]) -> Delay | None:
    """Returns the Delay with the longest wait, from the records of one job; None without one."""
    found = [delay for delay in map(of, records) if delay is not None]
    return max(found, key=lambda delay: delay.share, default=None)


def _waits(collectives: Iterable[Collective], rank: int | None, now: float) -> list[float]:
    """Returns the length of each wait for a rank; overlapping waits of collectives count as one."""
    spans: list[list[float]] = []
    for each in collectives:  # in the order of submission
        if each.waited_for != rank:
            continue
        end = next((at for at in (each.agreed, each.ended) if at is not None), now)
        if spans and each.submitted <= spans[-1][1]:
            spans[-1][1] = max(spans[-1][1], end)
        else:
            spans.append([each.submitted, end])
    return [end - begin for begin, end in spans]
