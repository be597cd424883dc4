"""How the launcher watches whether a job goes on: who is asked, and when.

In every job it finds out why ranks have waited for as long as the settings say. In an elastic one,
which goes on without a rank where it is told to, it also names a rank that does nothing after two
seconds: whoever looks on may know better than to wait.
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

_SOON = 5.0  # seconds: where ranks that hang are told so early, nobody needs to be named before
_TOLD = (Kind.STOPPED, Kind.DEAD)  # what is said of such a rank at once by others
_MOST_NOTICES = 20  # of a job


class JobMonitor:
    """The looks at the ranks of a job, and what comes of them. The supervisor's.

    Args:
        members: who takes part: not a rank that has yet to be let in, and may be rank 0 of a job of
            its own.
        limits: for how long ranks may wait.
        ask: sends a frame to the agents of all ranks that run, and returns these ranks.
        say: is given lines for the terminal.
        on_hang: is given the verdict on a job that hangs, and both looks.

    Attributes:
        KINDS: the frames of agents that it hears.
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
        """Does what is due; to be called a few times a second.

        Args:
            now: by the steady clock, in seconds.
            ends: whether the job is being ended.
        """
        self._looks.tick(now)
        if not ends:
            self._hang.tick(now)
            self._delay.tick(now)

    def hear(self, rank: int, kind: FrameKind, fields: dict[str, Any], now: float) -> None:
        """Takes what an agent says.

        Args:
            rank: that the agent runs.
            kind: STUCK: a rank has waited for so many seconds without progress, as it was asked.
                VIEW: what is seen of the rank; see `Looks.view`. SLOW: it waits for another one in
                step after step.
            fields: what comes with it.
            now: by the steady clock, in seconds.

        Raises:
            KeyError, TypeError, ValueError: if it is not that.
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
        """Takes a look for somebody who asks."""
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
