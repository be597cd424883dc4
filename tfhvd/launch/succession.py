"""How one supervisor of an elastic job follows another: what it takes over, and who comes again.

It is another process of the same host (keeper.py), or one on another host (heir.py) where that host
is lost and the job is to outlive it. The latter may go on only with most of the ranks: the others
may have a supervisor yet.
"""

from __future__ import annotations

import dataclasses
import os
import signal
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from tfhvd.launch import children, recruits, stopping
from tfhvd.launch.claim import Claim
from tfhvd.launch.ending import Ending, Rank
from tfhvd.launch.keeper import Journal
from tfhvd.launch.majority import Majority
from tfhvd.launch.members import Members
from tfhvd.launch.orders import Orders
from tfhvd.launch.stopping import Stopping
from tfhvd.launch.wills import Wills

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
        majority: what the members know of each other, where the job outlives a lost host of the
            launcher.
    """

    members: Members
    stopping: Stopping = field(default_factory=Stopping)
    ranks: dict[int, Rank] = field(default_factory=dict)
    manager: int = 0
    recruits: recruits.State = field(default_factory=recruits.State)
    majority: Majority | None = None


class Succession:
    """What a supervisor takes over, and leaves to the next one.

    Args:
        orders: what it is to do.
        now: seconds of a steady clock.
        journal: where that stands for the next process of this host; None: there is none.
        left: the estate of a supervisor on another host, which is lost, and our claim to it.

    Attributes:
        estate: what the one before has left; None: there was none.
        words: a pipe, (to read, to write), for what outlives a supervisor to say what it has to
            say; None: nothing does.
        changed: whether there is more to leave than is written.
    """

    def __init__(
        self,
        orders: Orders,
        now: float,
        *,
        journal: Journal | None = None,
        left: tuple[Estate, Claim] | None = None,
    ) -> None:
        self._journal = journal
        self._wills = Wills(orders) if orders.majority else None
        self._claim = None if left is None else left[1]
        self.estate: Estate | None = None if journal is None else journal.read()
        if left is not None:
            self.estate = elsewhere(left[0], now, orders.limits.stop)
        self._is_elsewhere = left is not None
        self._majority = None if self.estate is None else self.estate.majority
        self.words = None if journal is None else journal.words
        self.changed = True
        self._news: list[str] = []
        self._has_keeper = journal is not None
        ranks = {} if self.estate is None else self.estate.ranks
        self._missing = {number for number, rank in ranks.items() if rank.ending is None}
        self._known = frozenset(ranks)
        self._came: set[int] = set()
        self._until = now + COME_BY

    def beginning(self) -> str:
        """What is said where a supervisor takes the place of another one."""
        if self._is_elsewhere:
            return "tfhvdrun: tfhvdrun is lost, with its host, or cut off from this one"
        return (
            "tfhvdrun: the process that supervised the job was killed; another one "
            f"({os.getpid()}) takes its place, and the job goes on"
        )

    def news(self) -> list[str]:
        """What is to be said of who supervises the job: each once."""
        news, self._news = self._news, []
        if self._journal is not None and self._has_keeper and self._journal.keeper_is_gone:
            self._has_keeper = False
            news.append(
                f"tfhvdrun: the process that was started was killed; its other one, {os.getpid()}, "
                f"goes on with the job alone. To end it: kill {os.getpid()}"
            )
        return news

    def adopt(self, pid: int, stopping: Stopping) -> children.Process:
        """What another supervisor has started to start ranks, as this one has it.

        Args:
            pid: its process id.
            stopping: of the job.
        """
        if self._is_elsewhere:
            return children.Elsewhere(lambda: stopping.over)
        return children.Adopted(pid)

    def write(self, estate: Callable[[], Estate]) -> bytes | None:
        """Leaves what there is now, if it has changed; returns what all workers are told."""
        if not self.changed:
            return None
        left = estate()
        told = self._tell_others(left)
        if self._journal is not None:
            self._journal.write(dataclasses.replace(left, majority=self._majority))
        self.changed = False
        return told

    def _tell_others(self, estate: Estate) -> bytes | None:
        if self._wills is None or self._claim is not None or not estate.members.complete:
            return None
        present = estate.members.present
        self._majority = self._majority or Majority(present)
        return self._wills.write(estate, present, self._majority)

    # -- who comes -----------------------------------------------------------------------------

    @property
    def awaits_some(self) -> bool:
        """Whether some workers are to come again yet."""
        return bool(self._missing)

    def comes(self, number: int, inherits_at: str, *, here: bool, again: bool) -> bool:
        """Takes note that a rank's worker comes; returns whether another supervisor knew it.

        Args:
            number: the rank's.
            inherits_at: where one would listen that takes our place on its host, if one may.
            here: whether it is on our host.
            again: whether it says that it was with another supervisor.
        """
        if self._wills is not None:
            self._wills.heard(number, inherits_at, here=here)
        # One that has joined since a supervisor on another host has left its estate is not in that.
        known = number in self._known or self.undecided
        awaited = again and known and number not in self._came
        if awaited:
            self._missing.discard(number)
            self._came.add(number)
        return awaited

    def overdue(self, now: float) -> set[int]:
        """Takes the ranks that run, and whose workers should have come by now."""
        if now < self._until:
            return set()
        overdue, self._missing = self._missing, set()
        return overdue

    # -- a job that falls in two ---------------------------------------------------------------

    @property
    def undecided(self) -> bool:
        """Whether it is not known yet that the job may go on here."""
        return self._claim is not None

    def decide(self, present: Collection[int], now: float) -> bool | None:
        """Whether the job goes on here; None: that is not known yet. REQUIRES: `undecided`.

        Args:
            present: the members, by number.
            now: seconds of a steady clock.
        """
        assert self._claim is not None
        stands = self._claim.stands(self._came, present, now)
        if stands is not None:
            self._claim, self._majority, self._until = None, Majority(present), now
            self._missing = set(present) - self._came
            self.changed = True
        if stands:
            self._news.append(
                f"tfhvdrun: process {os.getpid()} of this host supervises the job from now on, "
                f"which goes on. To end it: kill {os.getpid()}"
            )
        return stands

    def turns_away(self, number: int, present: Collection[int]) -> bool:
        """Whether a rank that has come is to end: only the host that is lost could let it join.

        Args:
            number: its number.
            present: the members, by number.
        """
        decided = self._is_elsewhere and not self.undecided
        if not decided or number not in self._came or number in present:
            return False
        self._news.append(
            f"tfhvdrun: rank {number} is killed: it was to join, and no rank joins a job that has "
            "lost tfhvdrun's host"
        )
        return True

    def knows(self, number: int, version: int) -> None:
        """A rank's worker has what it was told for the case that our host is lost."""
        if self._majority is not None:
            self._majority.knows(number, version)

    def may_lose(
        self, rank: Rank, ending: Ending, ranks: Iterable[Rank], present: Collection[int]
    ) -> bool:
        """Takes note of a rank's end; returns whether the job may go on here without it.

        Args:
            rank: which.
            ending: how it has ended.
            ranks: all of them.
            present: the members until now, by number.
        """
        if self._majority is None or self._wills is None:
            return True
        if not ending.lost or self._wills.is_certain(rank.rank):
            self._majority.ended(rank.rank)
        left = [each.rank for each in ranks if each.ending is None]
        return self._majority.holds(left, present)


def elsewhere(estate: Estate, now: float, stop_timeout: float) -> Estate:
    """An estate as a supervisor of another host takes it over, whose clock is another one.

    Args:
        estate: what was left.
        now: seconds of this host's steady clock.
        stop_timeout: seconds between asking ranks to stop and killing them.
    """
    ended = dataclasses.replace(
        estate.stopping,
        at=None,
        steps=stopping.plan(now, signal.SIGTERM, stop_timeout) if estate.stopping.steps else [],
    )
    ranks = {
        number: rank
        if rank.ending is not None
        else Rank(number, rank.host, left_at=None if rank.left_at is None else now)
        for number, rank in estate.ranks.items()
    }
    meet_by = dict.fromkeys(estate.recruits.meet_by, now + recruits.JOIN_LIMIT)
    return Estate(estate.members, ended, ranks, recruits=recruits.State(meet_by=meet_by))


def without_lines(ranks: Iterable[Rank]) -> dict[int, Rank]:
    """Ranks without what they have written last, which is much and changes all the time."""
    return {rank.rank: dataclasses.replace(rank, last_lines=deque()) for rank in ranks}
