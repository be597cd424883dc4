"""HangWatch: checks from time to time whether a job makes progress, and reports why it hangs.

It takes snapshots of all ranks only if a rank has waited for others without any progress, and then
again until the ranks are known to stand still. It is pure except for the functions that it is
given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tfhvd.hang import classifier
from tfhvd.hang.causes import Kind
from tfhvd.hang.classifier import Verdict
from tfhvd.hang.snapshot import Snapshot

# By the start number of a rank, because ranks are numbered again when the members change.
Views = dict[int, Snapshot]

# The first snapshot is taken when a rank has waited for this part of the limit.
_EARLY = 0.25

# Causes that do not end by themselves, and for which the others wait: certain without more time.
_CERTAIN = {
    *(Kind.STOPPED, Kind.DEAD, Kind.RAISED, Kind.FINISHED),
    *(Kind.DIFFERENT, Kind.ORDER, Kind.NETWORK),
}

# For other causes, the snapshots only show that a rank stands still. This is a hang after the limit
# plus _LONGER seconds. When TensorFlow frees an iterator, its autotuner may miss that it is
# cancelled, and sleep for a minute. After an evaluation this may happen with any limit.
_LONGER = 5.0
_EVALUATION_HELD = 60.0

# At least so many seconds pass between the end of the first snapshot and the second one. Otherwise
# the counts between them mean nothing if the first snapshot took long.
_BETWEEN = 0.5


@dataclass(frozen=True)
class Pace:
    """The times of a HangWatch, in seconds.

    Attributes:
        early: how long a rank must have waited without progress before the first snapshot.
        probe: the time between two probes for such a rank.
        between: the time from the first snapshot to the second.
        still: how long a state that may end by itself must last to be a hang, from the first
            snapshot.
        longer: the time to add to `still`, or to the time of a wait that is known to end by itself.
        again: the time from a reported hang to its next snapshot.
        rest: the time from snapshots without a hang to the next first snapshot.
        longest_rest: the longest such time, if ranks wait for a rank that works; the time doubles
            up to it, because frequent snapshots would cost too much.
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
    """Returns the Pace for which a wait of `limit` seconds is a hang if nothing seen ends it."""
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


# With these times, an idle rank is found within two seconds. The wait may still end by itself.
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
        pace: the times of probes and snapshots; None: never.
        probe: finds out whether a rank has waited for `pace.early` seconds; `stuck` must be called
            then.
        take: begins a snapshot, and later calls its second argument with the result.
        tell: receives each new verdict, and both snapshots.
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
        self._rest = self._pace.rest  # seconds until the next first snapshot
        self._rest_until = 0.0
        self._looking = False
        self._first: Views | None = None  # the first snapshot, since which no rank has moved
        self._first_at = 0.0
        self._next_at = 0.0  # the time of the next snapshot
        self._told: object = None

    def tick(self, now: float) -> None:
        """Begins a probe or a snapshot that is due; call it a few times a second."""
        self._now = now
        if not self._is_on or self._looking:
            return
        if self._first is None and now >= self._probe_at:
            self._probe_at = now + self._pace.probe
            self._probe()
        elif self._first is not None and now >= self._next_at:
            self._look(self._judge)

    def stuck(self, now: float) -> None:
        """Begins the first snapshot, because a rank waits without progress."""
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
        # Nothing is known of a rank without both snapshots: its agent or helper may be late.
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
    """Returns the seconds from the first snapshot after which this cause is a hang."""
    if kind in _CERTAIN:
        return 0.0
    held = _EVALUATION_HELD if kind is Kind.EVALUATING else 0.0
    return max(pace.still, held) + pace.longer


def _who(views: Views) -> dict[int, tuple[int, int]]:
    """Returns the rank and process of each snapshot."""
    return {number: (seen.rank, seen.record.pid) for number, seen in views.items()}
