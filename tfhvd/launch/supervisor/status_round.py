"""Looks: status rounds, in which the agents of all running ranks send their views of the ranks.

Pure, except for the functions that it receives.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from typing import Any

from tfhvd.hang import snapshot
from tfhvd.hang.detector import Views
from tfhvd.protocol import messages
from tfhvd.protocol.messages import FrameKind

_ANSWER = 4.0  # seconds for all views to arrive: a rank has 2 seconds to write its stacks


class _Look:
    def __init__(self, asked: Collection[int], then: Callable[[Views], None], until: float) -> None:
        self.missing = set(asked)
        self.views: Views = {}
        self.then = then
        self.until = until


class Looks:
    """The rounds that are in progress.

    Args:
        ask: sends a frame to the agents of all ranks that run, and returns these ranks.
    """

    def __init__(self, ask: Callable[[bytes], Collection[int]]) -> None:
        self._ask = ask
        self._under_way: list[_Look] = []
        # An agent answers the rounds in their order, perhaps too late.
        self._of_rank: dict[int, deque[_Look]] = {}

    def take(self, now: float, then: Callable[[Views], None]) -> None:
        """Begins a round; ``then`` gets the views when all have arrived or the time is over.

        They contain no rank that has no flight record or has ended.
        """
        asked = self._ask(messages.frame(FrameKind.SNAPSHOT_REQUEST))
        look = _Look(asked, then, now + _ANSWER)
        self._under_way.append(look)
        for rank in asked:
            self._of_rank.setdefault(rank, deque()).append(look)

    def view(self, rank: int, fields: dict[str, Any]) -> None:
        """Adds an agent's view of its rank, which is empty without a flight record.

        Raises:
            KeyError, TypeError, ValueError: if the fields are not a view.
        """
        waiting = self._of_rank.get(rank)
        if waiting:
            look = waiting.popleft()
            look.missing.discard(rank)
            if fields:
                look.views[rank] = snapshot.of_fields(fields)

    def tick(self, now: float) -> None:
        """Ends the rounds that are complete, or whose time is over."""
        over = [look for look in self._under_way if not look.missing or now >= look.until]
        for look in over:
            self._under_way.remove(look)
            look.then(look.views)
