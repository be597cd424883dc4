"""Whether the job still goes on: probes it now and then, and says why not where it hangs.

Only if a rank has waited for others without any progress, all ranks are looked at, and again some
seconds later. Pure but for what it is given.
"""

from __future__ import annotations

from collections.abc import Callable

from tfhvd.watch import verdict
from tfhvd.watch.kind import Kind
from tfhvd.watch.snapshot import Snapshot
from tfhvd.watch.verdict import Verdict

Views = dict[int, Snapshot]  # by rank

_BETWEEN = 5.0  # seconds between the two looks
_LONGEST_REST = 4  # times the limit

# Seconds for which a rank that has evaluated may stand still, and go on then: where TensorFlow
# frees a dataset's iterator, its autotuner may miss that it is cancelled, and sleep on for so long.
_HOLD = 60.0


class HangWatch:
    """Watches one job.

    Args:
        limit: seconds without progress that make a rank's wait worth a look; 0: none do.
        probe: finds out whether a rank waits for that long: then somebody calls `stuck`.
        take: begins a look; the second argument gets what was seen, later.
        tell: is given each verdict that says something new, and both looks: what was seen of each
            rank.
    """

    def __init__(
        self,
        limit: float,
        probe: Callable[[], object],
        take: Callable[[float, Callable[[Views], None]], None],
        tell: Callable[[Verdict, list[list[Snapshot]]], None],
    ) -> None:
        self._limit = limit
        self._probe = probe
        self._take = take
        self._tell = tell
        self._now = 0.0
        self._probe_at = 0.0
        self._rest = limit / 2  # seconds from one look to the next
        self._rest_until = 0.0
        self._first: Views | None = None  # the first look, once it is over
        self._looking = False
        self._second_at: float | None = None  # when to take the second one
        self._told: object = None
        self._still: list[Snapshot] | None = None  # since when ranks stand still in an evaluation
        self._still_since = 0.0

    def tick(self, now: float) -> None:
        """Does what is due; to be called a few times a second."""
        self._now = now
        if not self._limit:
            return
        if not self._looking and now >= self._probe_at:
            self._probe_at = now + max(0.5, self._limit / 4)
            self._probe()
        elif self._first is not None and self._second_at is not None and now >= self._second_at:
            self._second_at = None
            self._take(now, self._judge)

    def stuck(self, now: float) -> None:
        """A rank waits without progress."""
        if self._limit and not self._looking and now >= self._rest_until:
            self._looking = True
            self._second_at = now + min(_BETWEEN, self._limit)
            self._take(now, self._keep)

    def _keep(self, views: Views) -> None:
        self._first = views

    def _judge(self, views: Views) -> None:
        first, self._first, self._looking = self._first or {}, None, False
        # Of a rank that was not seen both times nothing is known: who looks at it may be late.
        whole = first.keys() == views.keys()
        looks = [[look[rank] for rank in sorted(look)] for look in (first, views)]
        found = verdict.judge(looks[0], looks[1]) if looks[0] and whole else None
        hangs = found is not None and found.hangs
        # Where ranks wait for one that works on, a look a minute would be too many.
        longest = _LONGEST_REST * self._limit
        self._rest = self._limit if hangs else min(2 * self._rest, longest)
        self._rest_until = self._now + self._rest
        if found is None or not hangs or self._may_be_held(found, looks):
            return
        places = tuple(seen.line for seen in looks[1] if seen.rank in found.ranks)
        news = (found.kind, found.ranks, places)
        if news != self._told:
            self._told = news
            self._tell(found, looks)

    def _may_be_held(self, found: Verdict, looks: list[list[Snapshot]]) -> bool:
        """Whether ranks that were seen to stand still may go on by themselves."""
        if found.kind is not Kind.EVALUATING:
            return False
        all_along = verdict.judge(self._still, looks[1]) if self._still else None
        if all_along is None or not all_along.hangs or all_along.ranks != found.ranks:
            self._still, self._still_since = looks[0], self._now
        return self._now - self._still_since < _HOLD
