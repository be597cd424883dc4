"""The takeover from the last supervisor of an elastic job, and the handover to the next one.

The next supervisor is a process on the same host (standby.py), or on another host (standby_main.py)
if the launcher's host fails. A supervisor on another host continues only with more than half of the
ranks, because the other ranks may still have a supervisor.
"""

from __future__ import annotations

import dataclasses
import os
import signal
from collections import deque
from collections.abc import Callable, Collection, Iterable

from tfhvd.launch.failover.replication import Replicator
from tfhvd.launch.failover.standby import LocalSnapshot
from tfhvd.launch.state import shutdown_plan
from tfhvd.launch.state.handover import JOIN_LIMIT, Handover, JoinersState
from tfhvd.launch.state.quorum import Quorum, TakeoverClaim
from tfhvd.launch.state.rank_state import Ending, Rank
from tfhvd.launch.state.shutdown_plan import Stopping
from tfhvd.launch.state.supervisor_config import SupervisorConfig
from tfhvd.system import popen

COME_BY = 5.0  # seconds in which the agents of all running ranks connect to the next supervisor


class Takeover:
    """The state that a supervisor has from the last one, and leaves to the next one.

    Args:
        config: the configuration of the supervisor.
        now: seconds of a steady clock.
        snapshot: for the next supervisor on this host; None if there will be none.
        left: the handover of a supervisor whose host has failed, and our claim to it.

    Attributes:
        handover: the state from the last supervisor; None for the first supervisor.
        words: a pipe, (to read, to write), for the output of processes that outlive a supervisor;
            None if there are none.
        changed: whether the state has changed since the last `write`.
    """

    def __init__(
        self,
        config: SupervisorConfig,
        now: float,
        *,
        snapshot: LocalSnapshot | None = None,
        left: tuple[Handover, TakeoverClaim] | None = None,
    ) -> None:
        self._snapshot = snapshot
        self._replicator = Replicator(config) if config.majority else None
        self._claim = None if left is None else left[1]
        self.handover: Handover | None = None if snapshot is None else snapshot.read()
        if left is not None:
            self.handover = elsewhere(left[0], now, config.limits.stop)
        self._is_elsewhere = left is not None
        self._quorum = None if self.handover is None else self.handover.majority
        self.words = None if snapshot is None else snapshot.words
        self.changed = True
        self._news: list[str] = []
        self._has_keeper = snapshot is not None
        ranks = {} if self.handover is None else self.handover.ranks
        self._missing = {number for number, rank in ranks.items() if rank.ending is None}
        self._known = frozenset(ranks)
        self._came: set[int] = set()
        self._until = now + COME_BY

    def beginning(self) -> str:
        """Return the line which reports that this supervisor takes over."""
        if self._is_elsewhere:
            return "tfhvdrun: lost contact with the launcher's host; this host takes over"
        return (
            "tfhvdrun: the process that supervised the job was killed; process "
            f"{os.getpid()} takes over, and the job continues"
        )

    def news(self) -> list[str]:
        """Return new lines about the change of supervisors, each once."""
        news, self._news = self._news, []
        if self._snapshot is not None and self._has_keeper and self._snapshot.keeper_is_gone:
            self._has_keeper = False
            news.append(
                f"tfhvdrun: the process that was started was killed; its standby {os.getpid()} "
                f"continues the job alone. To end it: kill {os.getpid()}"
            )
        return news

    def adopt(self, pid: int, stopping: Stopping) -> popen.Process:
        """Return the process with which the last supervisor has started ranks.

        Args:
            pid: its process id.
            stopping: the progress of the job's end.
        """
        if self._is_elsewhere:
            return popen.Elsewhere(lambda: stopping.over)
        return popen.Adopted(pid)

    def write(self, handover: Callable[[], Handover]) -> bytes | None:
        """Write the state if it has changed; return the message for all agents, if any."""
        if not self.changed:
            return None
        left = handover()
        told = self._tell_others(left)
        if self._snapshot is not None:
            self._snapshot.write(dataclasses.replace(left, majority=self._quorum))
        self.changed = False
        return told

    def _tell_others(self, handover: Handover) -> bytes | None:
        if self._replicator is None or self._claim is not None or not handover.members.complete:
            return None
        present = handover.members.present
        self._quorum = self._quorum or Quorum(present)
        return self._replicator.write(handover, present, self._quorum)

    # -- agents that connect -------------------------------------------------------------------

    @property
    def takes_over(self) -> bool:
        """Whether this supervisor has taken over from another one."""
        return self.handover is not None

    @property
    def awaits_some(self) -> bool:
        """Whether some agents have not connected again yet."""
        return bool(self._missing)

    def comes(self, number: int, inherits_at: str, *, here: bool, again: bool) -> bool:
        """Note that an agent has connected; return whether the last supervisor knew it.

        Args:
            number: the number of the agent's rank.
            inherits_at: the address of a successor on the agent's host; "" if none can run there.
            here: whether the agent runs on this host.
            again: whether the agent says that it was connected to an earlier supervisor.
        """
        if self._replicator is not None:
            self._replicator.heard(number, inherits_at, here=here)
        # The state of a supervisor on another host does not contain ranks that joined later.
        known = number in self._known or self.undecided
        awaited = again and known and number not in self._came
        if awaited:
            self._missing.discard(number)
            self._came.add(number)
        return awaited

    def overdue(self, now: float) -> set[int]:
        """Remove and return the running ranks whose agents have not connected in time."""
        if now < self._until:
            return set()
        overdue, self._missing = self._missing, set()
        return overdue

    # -- a partitioned job --------------------------------------------------------------------

    @property
    def undecided(self) -> bool:
        """Whether this supervisor has yet to decide if the job continues on its side."""
        return self._claim is not None

    def decide(self, present: Collection[int], now: float) -> bool | None:
        """Return whether the job continues here; None if undecided yet. REQUIRES: `undecided`.

        Args:
            present: the numbers of the members.
            now: seconds of a steady clock.
        """
        assert self._claim is not None
        stands = self._claim.stands(self._came, present, now)
        if stands is not None:
            self._claim, self._quorum, self._until = None, Quorum(present), now
            self._missing = set(present) - self._came
            self.changed = True
        if stands:
            self._news.append(
                f"tfhvdrun: process {os.getpid()} of this host now supervises the job, which "
                f"continues. To end it: kill {os.getpid()}"
            )
        return stands

    def turns_away(self, number: int, present: Collection[int]) -> bool:
        """Return whether a connected rank must end: only the failed host could have admitted it.

        Args:
            number: the number of the rank.
            present: the numbers of the members.
        """
        decided = self._is_elsewhere and not self.undecided
        if not decided or number not in self._came or number in present:
            return False
        self._news.append(
            f"tfhvdrun: rank {number} is killed: it was about to join, and no rank can join after "
            "the launcher's host has failed"
        )
        return True

    def knows(self, number: int, version: int) -> None:
        """Note that a rank's agent has this version of the takeover state."""
        if self._quorum is not None:
            self._quorum.knows(number, version)

    def may_lose(
        self, rank: Rank, ending: Ending, ranks: Iterable[Rank], present: Collection[int]
    ) -> bool:
        """Note a rank's end; return whether the job may continue here without the rank.

        Args:
            rank: the rank.
            ending: how it has ended.
            ranks: all ranks.
            present: the numbers of the members until now.
        """
        if self._quorum is None or self._replicator is None:
            return True
        if not ending.lost or self._replicator.is_certain(rank.rank):
            self._quorum.ended(rank.rank)
        left = [each.rank for each in ranks if each.ending is None]
        return self._quorum.holds(left, present)


def elsewhere(handover: Handover, now: float, stop_timeout: float) -> Handover:
    """Return a handover for a supervisor on another host, which has another clock.

    Args:
        handover: the handover of the last supervisor.
        now: seconds of this host's steady clock.
        stop_timeout: seconds between asking ranks to stop and killing them.
    """
    ended = dataclasses.replace(
        handover.stopping,
        at=None,
        steps=shutdown_plan.plan(now, signal.SIGTERM, stop_timeout)
        if handover.stopping.steps
        else [],
    )
    ranks = {
        number: rank
        if rank.ending is not None
        else Rank(number, rank.host, left_at=None if rank.left_at is None else now)
        for number, rank in handover.ranks.items()
    }
    meet_by = dict.fromkeys(handover.joiners.meet_by, now + JOIN_LIMIT)
    return Handover(handover.members, ended, ranks, joiners=JoinersState(meet_by=meet_by))


def without_lines(ranks: Iterable[Rank]) -> dict[int, Rank]:
    """Return copies of ranks without the last lines of their output, which change all the time."""
    return {rank.rank: dataclasses.replace(rank, last_lines=deque()) for rank in ranks}
