"""Which rank others wait for in step after step, though the job goes on: from flight records."""

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

_STEPS = 300  # after which it is said unasked
_EVERY = 5.0  # seconds from one look to the next
_LAST = 60.0  # seconds that are looked at
_FEWEST = 10  # steps in them
_SHARE = 0.2  # of the time: less is not worth a word
_MOST_OF_IT = 0.8  # of all waiting: else the ranks wait for each other in turns


@dataclass(frozen=True)
class Delay:
    """A rank that is slower than another one.

    Attributes:
        rank: the slow one.
        waiter: the one that waits for it.
        share: how much of the time that does so.
        seconds: the time that was looked at.
        steps: how many steps the job has taken, about.
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
        """What a job says of it unasked."""
        return f"{self} (after {self.steps:,} steps). To see where it is, type: tfhvd why"

    def fields(self) -> dict[str, Any]:
        """What JSON can hold: the arguments of another one."""
        return dataclasses.asdict(self)


def of(record: Record) -> Delay | None:
    """For whom a rank waits, if for one above all, and in most of its steps."""
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
    # Without the longest, which may be of a compilation.
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
    """Looks now and then whom a rank waits for, until that is found in a job of some length."""

    def __init__(self) -> None:
        self._look_at = 0.0

    def look(self, file: int, now: float) -> Delay | None:
        """Returns it once.

        Args:
            file: the rank's record.
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
    """The one for which a rank waits longest, of all ranks of a job that are seen."""
    found = [delay for delay in map(of, records) if delay is not None]
    return max(found, key=lambda delay: delay.share, default=None)


def _waits(collectives: Iterable[Collective], rank: int | None, now: float) -> list[float]:
    """For how long it was waited for a rank, each time: for several collectives at once, once."""
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
