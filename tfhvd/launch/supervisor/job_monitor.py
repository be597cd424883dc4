"""JobMonitor: watches whether a job makes progress, and decides when to ask which ranks.

In every job it finds out why ranks have waited longer than the settings allow. In an elastic job it
also names a rank that has done nothing for two seconds: the user may kill this rank instead of
waiting, and the job continues without it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from typing import Any

from tfhvd.hang import slow_ranks, status_query
from tfhvd.hang.causes import Kind
from tfhvd.hang.classifier import Verdict
from tfhvd.hang.detector import EAGER, HangWatch, Pace, Views, patient
from tfhvd.launch.state.roster import Roster
from tfhvd.launch.state.supervisor_config import Timeouts
from tfhvd.launch.supervisor import hang_report
from tfhvd.launch.supervisor.status_round import Looks
from tfhvd.protocol import messages
from tfhvd.protocol.messages import FrameKind

_SOON = 5.0  # seconds; a hang limit of at most this needs no earlier notice
_TOLD = (Kind.STOPPED, Kind.DEAD)  # other parts of the launcher report such a rank at once
_MOST_NOTICES = 20  # for each job


class JobMonitor:
    """The status rounds of a job and the verdicts from them; owned by the supervisor.

    Args:
        members: the members, whose views count. A joining rank may be rank 0 of a warm-up.
        limits: how long ranks may wait.
        ask: sends a frame to the agents of all ranks that run, and returns these ranks.
        say: prints lines on the terminal.
        on_hang: receives the verdict on a job that hangs, and both rounds of views.

    Attributes:
        KINDS: the kinds of frames from agents that `hear` accepts.
    """

    KINDS = (FrameKind.STALLED, FrameKind.SNAPSHOT, FrameKind.SLOW_RANK)

    def __init__(
        self,
        *,
        members: Roster,
        limits: Timeouts,
        ask: Callable[[bytes], Collection[int]],
        say: Callable[[str], None],
        on_hang: Callable[[Verdict, list[Views]], None],
    ) -> None:
        self._evicts = limits.evict
        self._members = members
        self._say = say
        self._notices = 0
        self._says_slow = limits.hang > 0  # once
        self._looks = Looks(ask)

        def watch(
            is_on: bool, pace: Pace, tell: Callable[[Verdict, list[Views]], None]
        ) -> HangWatch:
            asks = messages.frame_json(FrameKind.STALL_QUERY, limit=pace.early)
            probe = functools.partial(ask, asks)
            return HangWatch(pace if is_on else None, probe, self._take, tell)

        soon = members.elastic and limits.hang > _SOON
        self._hang = watch(limits.hang > 0, patient(limits.hang), on_hang)
        self._delay = watch(soon, EAGER, self._on_delay)

    def tick(self, now: float, *, ends: bool) -> None:
        """Does the work that is due; call it a few times a second.

        Args:
            now: by the steady clock, in seconds.
            ends: whether the job is being ended.
        """
        self._looks.tick(now)
        if not ends:
            self._hang.tick(now)
            self._delay.tick(now)

    def hear(self, rank: int, kind: FrameKind, fields: dict[str, Any], now: float) -> None:
        """Handles a frame of an agent.

        Args:
            rank: the agent's rank.
            kind: STALLED: the rank has waited without progress for as long as STALL_QUERY said.
                SNAPSHOT: the agent's view of the rank; see `Looks.view`. SLOW_RANK: the rank waits
                for another rank in step after step.
            fields: the contents of the frame.
            now: by the steady clock, in seconds.

        Raises:
            KeyError, TypeError, ValueError: if the fields do not match the kind.
        """
        if kind == FrameKind.STALLED:
            early = float(fields["limit"])
            (self._delay if early == EAGER.early else self._hang).stuck(now)
        elif kind == FrameKind.SNAPSHOT:
            self._looks.view(rank, fields)
        elif self._says_slow:
            self._say(f"tfhvdrun: {slow_ranks.Delay(**fields).notice}")
            self._says_slow = False

    def answer(self, send: Callable[[bytes], None], now: float) -> None:
        """Answers a STATUS_QUERY after a new status round."""
        self._looks.take(now, functools.partial(status_query.answer, send))

    def _take(self, now: float, then: Callable[[Views], None]) -> None:
        def of_present(views: Views) -> None:
            present = set(self._members.present)
            then({number: seen for number, seen in views.items() if number in present})

        self._looks.take(now, of_present)

    def _on_delay(self, found: Verdict, looks: list[Views]) -> None:
        if found.ranks and found.kind not in _TOLD and self._notices < _MOST_NOTICES:
            self._notices += 1
            self._say(hang_report.delay(found, looks, self._evicts))
