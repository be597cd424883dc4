"""How one supervisor of an elastic job follows another: what it takes over, and who comes again."""

from __future__ import annotations

import dataclasses
import os
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tfhvd.launch import recruits
from tfhvd.launch.ending import Rank
from tfhvd.launch.keeper import Journal
from tfhvd.launch.members import Members
from tfhvd.launch.stopping import Stopping

COME_BY = 5.0  # seconds in which the workers of all ranks that run come to the next supervisor


@dataclass(frozen=True)
class Estate:
    """What a supervisor knows, and the next one takes over.

    Attributes:
        members: who takes part.
        stopping: how far the job's end has come.
        ranks: all that have come, by number.
        manager: the process id of what has started the ranks.
        recruits: what is known of those that were started later.
    """

    members: Members
    stopping: Stopping = field(default_factory=Stopping)
    ranks: dict[int, Rank] = field(default_factory=dict)
    manager: int = 0
    recruits: recruits.State = field(default_factory=recruits.State)


class Succession:
    """What a supervisor takes over, and leaves to the next one.

    Args:
        journal: where that stands; None: there is no other supervisor.
        now: seconds of a steady clock.

    Attributes:
        estate: what the one before has left; None: there was none.
        words: a pipe, (to read, to write), for what outlives a supervisor to say what it has to
            say; None: nothing does.
        changed: whether there is more to leave than is written.
    """

    def __init__(self, journal: Journal | None, now: float) -> None:
        self._journal = journal
        self.estate: Estate | None = None if journal is None else journal.read()
        self.words = None if journal is None else journal.words
        self.changed = True
        self._has_keeper = journal is not None
        ranks = {} if self.estate is None else self.estate.ranks
        self._missing = {number for number, rank in ranks.items() if rank.ending is None}
        self._ended = set(ranks) - self._missing
        self._until = now + COME_BY

    def news(self) -> list[str]:
        """What is to be said of the two processes: each once."""
        if self._journal is None or not self._has_keeper or not self._journal.keeper_is_gone:
            return []
        self._has_keeper = False
        return [
            f"tfhvdrun: the process that was started was killed; its other one, {os.getpid()}, "
            f"goes on with the job alone. To end it: kill {os.getpid()}"
        ]

    def write(self, estate: Callable[[], Estate]) -> None:
        """Leaves what there is now, if it has changed."""
        if self._journal is not None and self.changed:
            self._journal.write(estate())
        self.changed = False

    @property
    def awaits_some(self) -> bool:
        """Whether some workers are to come again yet."""
        return bool(self._missing)

    def comes_again(self, number: int) -> bool:
        """Takes note that a rank's worker comes again; returns whether it may."""
        awaited = number in self._missing | self._ended
        self._missing.discard(number)
        self._ended.discard(number)
        return awaited

    def overdue(self, now: float) -> set[int]:
        """Takes the ranks that run, and whose workers should have come by now."""
        if now < self._until:
            return set()
        overdue, self._missing = self._missing, set()
        return overdue


def without_lines(ranks: Iterable[Rank]) -> dict[int, Rank]:
    """Ranks without what they have written last, which is much and changes all the time."""
    return {rank.rank: dataclasses.replace(rank, last_lines=deque()) for rank in ranks}
