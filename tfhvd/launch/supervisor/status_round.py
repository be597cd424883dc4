"""Looks at all ranks of the job: the agents of those that run say what they see of them.

Pure but for what it is given.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from typing import Any

from tfhvd.hang import snapshot
from tfhvd.hang.detector import Views
from tfhvd.protocol import messages
from tfhvd.protocol.messages import FrameKind

_ANSWER = 4.0  # seconds for all views to come: a rank has 2 to write its stacks


class _Look:
    def __init__(self, asked: Collection[int], then: Callable[[Views], None], until: float) -> None:
        self.missing = set(asked)
        self.views: Views = {}
        self.then = then
        self.until = until


class Looks:
    """The looks that are under way.

    Args:
        ask: sends a frame to the agents of all ranks that run, and returns these ranks.
    """

    def __init__(self, ask: Callable[[bytes], Collection[int]]) -> None:
        self._ask = ask
        self._under_way: list[_Look] = []
        # An agent answers one look after the other, maybe too late.
        self._of_rank: dict[int, deque[_Look]] = {}

    def take(self, now: float, then: Callable[[Views], None]) -> None:
        """Begins a look; ``then`` gets what was seen, once all have answered or time is up.

        A rank without a record, or that has ended, is not in it.
        """
        asked = self._ask(messages.frame(FrameKind.SNAPSHOT_REQUEST))
        look = _Look(asked, then, now + _ANSWER)
        self._under_way.append(look)
        for rank in asked:
            self._of_rank.setdefault(rank, deque()).append(look)

    def view(self, rank: int, fields: dict[str, Any]) -> None:
        """An agent says what it sees of its rank: nothing where it has no record.

        Raises:
            KeyError, TypeError, ValueError: if this is no view.
        """
        waiting = self._of_rank.get(rank)
        if waiting:
            look = waiting.popleft()
            look.missing.discard(rank)
            if fields:
                look.views[rank] = snapshot.of_fields(fields)

    def tick(self, now: float) -> None:
        """Ends looks that are complete, or that have waited long enough."""
        over = [look for look in self._under_way if not look.missing or now >= look.until]
        for look in over:
            self._under_way.remove(look)
            look.then(look.views)
