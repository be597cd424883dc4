"""Whether the job still goes on: asks the workers now and then, and says why not where it hangs.

A worker answers a probe only if its rank has waited for others without any progress. Then all of
them take a look at their ranks, and another one some seconds later. Pure but for what it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from tfhvd.launch import wire
from tfhvd.watch import snapshot, verdict
from tfhvd.watch.snapshot import Snapshot
from tfhvd.watch.verdict import Verdict

_ANSWER = 4.0  # seconds for all views to come: a rank has 2 to write its stacks
_BETWEEN = 5.0  # seconds between the two looks
_LONGEST_REST = 4  # times the limit


class HangWatch:
    """Watches one job.

    Args:
        limit: seconds without progress that make a rank's wait worth a look; 0: none do.
        ask: sends a frame to the workers of all ranks that run, and returns these ranks.
        tell: is given each verdict that says something new, and both looks: what was seen of each
            rank.
    """

    def __init__(
        self,
        limit: float,
        ask: Callable[[bytes], Collection[int]],
        tell: Callable[[Verdict, list[list[Snapshot]]], None],
    ) -> None:
        self._limit = limit
        self._ask = ask
        self._tell = tell
        self._probe_at = 0.0
        self._rest = limit / 2  # seconds from one look to the next
        self._rest_until = 0.0
        self._looks: list[dict[int, Snapshot]] = []
        self._asked: set[int] = set()  # who has not answered in the last look
        self._until = 0.0  # when the last look is over
        self._told: object = None

    def tick(self, now: float) -> None:
        """Does what is due; to be called a few times a second."""
        if not self._limit:
            return
        if not self._looks:
            if now >= self._probe_at:
                self._probe_at = now + max(0.5, self._limit / 4)
                self._ask(wire.frame_json(wire.PROBE, limit=self._limit))
        elif len(self._looks) == 1:
            if now >= self._until:
                self._look(now, _ANSWER)
        elif now >= self._until or not self._asked:
            self._judge(now)

    def stuck(self, now: float) -> None:
        """A worker says that its rank waits without progress."""
        if self._limit and not self._looks and now >= self._rest_until:
            self._look(now, min(_BETWEEN, self._limit))

    def view(self, rank: int, fields: dict[str, Any]) -> None:
        """A worker says what it sees of its rank: nothing where it has no record.

        Raises:
            KeyError, TypeError, ValueError: if this is no view.
        """
        if self._looks and rank in self._asked:
            self._asked.discard(rank)
            if fields:
                self._looks[-1][rank] = snapshot.of_fields(fields)

    def _look(self, now: float, seconds: float) -> None:
        self._looks.append({})
        self._asked = set(self._ask(wire.frame(wire.REPORT)))
        self._until = now + seconds

    def _judge(self, now: float) -> None:
        # Of a rank whose worker has not answered both times nothing is known: it may be late.
        whole = self._looks[0].keys() == self._looks[1].keys()
        looks = [[look[rank] for rank in sorted(look)] for look in self._looks]
        self._looks = []
        found = verdict.judge(looks[0], looks[1]) if looks[0] and whole else None
        hangs = found is not None and found.hangs
        # Where ranks wait for one that works on, a look a minute would be too many.
        longest = _LONGEST_REST * self._limit
        self._rest = self._limit if hangs else min(2 * self._rest, longest)
        self._rest_until = now + self._rest
        if found is None or not hangs:
            return
        places = tuple(seen.line for seen in looks[1] if seen.rank in found.ranks)
        news = (found.kind, found.ranks, places)
        if news != self._told:
            self._told = news
            self._tell(found, looks)
