"""Whether the job still goes on: probes it now and then, and says why not where it hangs.

Only if a rank has waited for others without any progress, all ranks are looked at, and again until
it is known that they stand still. Pure but for what it is given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tfhvd.hang import classifier
from tfhvd.hang.causes import Kind
from tfhvd.hang.classifier import Verdict
from tfhvd.hang.snapshot import Snapshot

# By the number that a rank was started with: where members change, ranks get other ones.
Views = dict[int, Snapshot]

# The part of the limit for which a rank has waited when all are looked at for the first time.
_EARLY = 0.25

# What a rank does not leave by itself, and what the others wait for: no time makes it surer.
_CERTAIN = {
    *(Kind.STOPPED, Kind.DEAD, Kind.RAISED, Kind.FINISHED),
    *(Kind.DIFFERENT, Kind.ORDER, Kind.NETWORK),
}

# Of what else a rank does it is only seen that it stands still. That is a hang after the limit and
# so many seconds: where TensorFlow frees a dataset's iterator, its autotuner may miss that it is
# cancelled, and sleep on for a minute. So it may after an evaluation, however short the limit is.
_LONGER = 5.0
_EVALUATION_HELD = 60.0

# Seconds from the end of the first look to the second one at least: what is counted meanwhile
# says nothing otherwise, where the first look took long.
_BETWEEN = 0.5


@dataclass(frozen=True)
class Pace:
    """When a job is looked at, in seconds.

    Attributes:
        early: for how long a rank has waited without progress when all are looked at.
        probe: from one time that this is asked to the next.
        between: from the first look to the second one.
        still: from the first look on, for how long it must last where it may end by itself.
        longer: so much longer than that, and than what is known to end by itself.
        again: from a hang that was told to the next look at it.
        rest: from looks that have found no hang to the next ones.
        longest_rest: the same, where ranks wait for one that works on: a look often would be too
            many.
    """

    early: float
    probe: float
    between: float
    still: float
    longer: float
    again: float
    rest: float
    longest_rest: float


def patient(limit: float) -> Pace:
    """A wait of so many seconds, in which nothing was seen that would end it, is a hang."""
    return Pace(
        early=_EARLY * limit,
        probe=max(0.5, limit / 4),
        between=(1 - _EARLY) * limit,
        still=limit,
        longer=min(_LONGER, limit),
        again=limit,
        rest=limit / 2,
        longest_rest=4 * limit,
    )


# A rank that does nothing is seen within two seconds. It may still end by itself.
EAGER = Pace(
    early=0.8,
    probe=0.4,
    between=0.6,
    still=0.0,
    longer=0.0,
    again=30.0,
    rest=1.0,
    longest_rest=60.0,
)


class HangWatch:
    """Watches one job.

    Args:
        pace: when it is looked at; None: never.
        probe: finds out whether a rank has waited for `pace.early`: then somebody calls `stuck`.
        take: begins a look; the second argument gets what was seen, later.
        tell: is given each verdict that says something new, and both looks.
    """

    def __init__(
        self,
        pace: Pace | None,
        probe: Callable[[], object],
        take: Callable[[float, Callable[[Views], None]], None],
        tell: Callable[[Verdict, list[Views]], None],
    ) -> None:
        self._is_on = pace is not None
        self._pace = pace or EAGER
        self._probe = probe
        self._take = take
        self._tell = tell
        self._now = 0.0
        self._probe_at = 0.0
        self._rest = self._pace.rest  # seconds until the next first look
        self._rest_until = 0.0
        self._looking = False
        self._first: Views | None = None  # the first look, since which nobody has moved
        self._first_at = 0.0
        self._next_at = 0.0  # when to look again
        self._told: object = None

    def tick(self, now: float) -> None:
        """Does what is due; to be called a few times a second."""
        self._now = now
        if not self._is_on or self._looking:
            return
        if self._first is None and now >= self._probe_at:
            self._probe_at = now + self._pace.probe
            self._probe()
        elif self._first is not None and now >= self._next_at:
            self._look(self._judge)

    def stuck(self, now: float) -> None:
        """A rank waits without progress."""
        self._now = now
        ready = not self._looking and self._first is None and now >= self._rest_until
        if self._is_on and ready:
            self._first_at = now
            self._look(self._keep)

    def _look(self, then: Callable[[Views], None]) -> None:
        self._looking = True
        self._take(self._now, then)

    def _keep(self, views: Views) -> None:
        self._looking = False
        self._first = views
        self._next_at = max(self._first_at + self._pace.between, self._now + _BETWEEN)

    def _judge(self, views: Views) -> None:
        self._looking = False
        first = self._first or {}
        # Of a rank that was not seen both times nothing is known: who looks at it may be late.
        whole = bool(first) and _who(first) == _who(views)
        found = classifier.judge([*first.values()], [*views.values()]) if whole else None
        if found is None or not found.hangs:
            works = found is not None and found.kind is not Kind.PROGRESS
            longer = min(2 * self._rest, self._pace.longest_rest)
            self._rest = longer if works else self._pace.rest
            self._rest_until = self._now + self._rest
            self._first = None
            return
        sure_at = self._first_at + _stands_still_for(found.kind, self._pace)
        if self._now < sure_at:
            self._next_at = sure_at
            return
        self._rest = self._pace.again
        self._next_at = self._now + self._pace.again
        places = [seen.line for _, seen in sorted(views.items()) if seen.rank in found.ranks]
        news = (found.kind, found.ranks, places)
        if news != self._told:
            self._told = news
            self._tell(found, [first, views])


def _stands_still_for(kind: Kind, pace: Pace) -> float:
    """Seconds from the first look on after which this is a hang."""
    if kind in _CERTAIN:
        return 0.0
    held = _EVALUATION_HELD if kind is Kind.EVALUATING else 0.0
    return max(pace.still, held) + pace.longer


def _who(views: Views) -> dict[int, tuple[int, int]]:
    """Which processes were seen, as which ranks."""
    return {number: (seen.rank, seen.record.pid) for number, seen in views.items()}
