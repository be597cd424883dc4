"""Joiners: starts the ranks that join an elastic job later, and admits them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tfhvd.launch.state.handover import JOIN_LIMIT, JoinersState
from tfhvd.launch.state.hosts import Host
from tfhvd.launch.state.join_barriers import JoinBarriers
from tfhvd.launch.state.rank_state import Rank
from tfhvd.launch.state.roster import Roster
from tfhvd.launch.state.scaling import Autoscaler
from tfhvd.launch.supervisor.process_manager import ProcessManager
from tfhvd.protocol import messages
from tfhvd.protocol.messages import FrameKind
from tfhvd.system.formatting import ranks_text

# The message about a joining rank that has called a collective before it trains; see
# rank_channel.Sender.outside.
_STAYS_OUT = (
    "cannot join: before training, the script called a collective that a late rank cannot replay. "
    "See 'Joining ranks' in docs/elastic.md"
)
_WAITS = "waits until the other ranks start training, in fit or hvd.elastic.run"


class Joiners:
    """The joining ranks: it starts them when they are due, and admits them when members are ready.

    Args:
        members: the roster of the job.
        autoscaler: decides when and where ranks are started; None: never.
        start: starts ranks on a host, by their numbers.
        tell: sends a message, unless None, to all agents.
        kill: kills a rank.
        say: prints lines.
    """

    def __init__(
        self,
        members: Roster,
        autoscaler: Autoscaler | None,
        *,
        start: Callable[[Host, Sequence[int]], ProcessManager],
        tell: Callable[[bytes | None], object],
        kill: Callable[[int], object],
        say: Callable[[str], object],
    ) -> None:
        self._members = members
        self._autoscaler = autoscaler
        self._start = start
        self._tell = tell
        self._kill = kill
        self._say = say
        # Each process manager, with those of its ranks whose agents have not connected yet.
        self._managers: list[tuple[ProcessManager, set[int]]] = []
        # By admitted rank, until when it must be connected to the others, which wait for it.
        self._meet_by: dict[int, float] = {}
        self._barriers = JoinBarriers()
        self._stay_out: set[int] = set()

    @property
    def state(self) -> JoinersState:
        """The state from which the next supervisor continues."""
        grown = None if self._autoscaler is None else self._autoscaler.state
        managers = [(manager.pid, set(unheard)) for manager, unheard in self._managers]
        return JoinersState(managers, dict(self._meet_by), grown)

    def take_up(self, state: JoinersState, adopt: Callable[[int], ProcessManager]) -> None:
        """Continues from the state of the last supervisor.

        Args:
            state: the last supervisor's state.
            adopt: takes over a process that has started ranks, by its process id.
        """
        self._managers = [(adopt(pid), unheard) for pid, unheard in state.managers]
        self._meet_by = state.meet_by
        if self._autoscaler is not None and state.autoscaler is not None:
            self._autoscaler.take_up(state.autoscaler)

    @property
    def hosts(self) -> dict[int, str]:
        """The hosts of the ranks that run, by their numbers."""
        return {} if self._autoscaler is None else dict(self._autoscaler.state[0])

    @property
    def have_ended(self) -> bool:
        """Whether all processes that have started joining ranks have ended."""
        return all(manager.has_ended for manager, _ in self._managers)

    def tick(self, now: float, *, ends: bool) -> None:
        """Notes ended process managers, kills overdue ranks, starts due ones unless the job `ends`.

        A rank is overdue if it is admitted, and has not connected to the others in time.
        """
        if self._autoscaler is not None:
            self._grow(self._autoscaler, now, ends=ends)
        for rank in [rank for rank, limit in self._meet_by.items() if now > limit]:
            del self._meet_by[rank]
            self._say(
                f"tfhvdrun: rank {rank} is killed: it did not connect to the other ranks in time"
            )
            self._kill(rank)
        if self._barriers.waiting:
            self._let_pass()

    def _grow(self, autoscaler: Autoscaler, now: float, *, ends: bool) -> None:
        autoscaler.tick(now)
        for manager, unheard in self._managers:
            if manager.has_ended:
                for rank in unheard:
                    autoscaler.ended(rank, now, failed=True)
                unheard.clear()
        if self._members.complete and self._members.may_change and not ends:
            for host, ranks in autoscaler.due(now):
                self._managers.append((self._start(host, ranks), set(ranks)))

    def _let_pass(self) -> None:
        outside = {n: host for n, host in self.hosts.items() if n not in self._members.present}
        passed = self._barriers.due(outside, {*self._members.waiting, *self._stay_out})
        if passed:
            self._tell(messages.frame_json(FrameKind.BARRIERS_PASSED, barriers=passed))

    def heard(self, rank: int) -> bool:
        """Notes that a rank's agent has connected; returns whether it was started here."""
        for _, unheard in self._managers:
            if rank in unheard:
                unheard.discard(rank)
                return True
        return False

    def on_joining(self, rank: Rank, fields: Mapping[str, Any], now: float) -> None:
        """Handles a rank's message about joining; see rank_channel.Sender."""
        number = rank.rank
        if "ready" in fields:
            try:
                identity, trained = str(fields["ready"]), int(fields["trained"])
                self._tell(self._members.ready(number, identity, trained))
            except ValueError as error:
                self._say(f"tfhvdrun: rank {number} on host {rank.host} cannot join: {error}")
                self._kill(number)
            if number in self._members.waiting:
                self._say(
                    f"tfhvdrun: rank {number} on host {rank.host} waits to join: at the next epoch "
                    "of fit, or commit of hvd.elastic"
                )
        elif "begun" in fields:
            self._tell(self._members.begun(fields["begun"], int(fields["trained"])))
        elif "barrier" in fields:
            self._barriers.come(number, int(fields["barrier"]))
        elif "outside" in fields:
            if fields["outside"]:
                self._stay_out.add(number)
            why = _STAYS_OUT if fields["outside"] else _WAITS
            self._say(f"tfhvdrun: rank {number} on host {rank.host} {why}")
        elif "let_in" in fields:
            before = set(self._members.present)
            self._tell(self._members.let_in(int(fields["let_in"])))
            joined = [each for each in self._members.present if each not in before]
            self._meet_by |= dict.fromkeys(joined, now + JOIN_LIMIT)
            if joined:
                verb = "joins" if len(joined) == 1 else "join"
                size = len(self._members.present)
                who = ranks_text(joined)
                self._say(f"tfhvdrun: {who} {verb}; the job continues with {size} ranks")
        else:
            self._meet_by.pop(number, None)

    def ended(self, rank: int, now: float, *, failed: bool) -> None:
        """Notes the end of any rank of the job.

        Args:
            rank: its number.
            now: seconds, by the monotonic clock.
            failed: whether to start no rank on its host for a while. Also True for a rank that
                ended well before it was admitted, since the next one would end in the same way.
        """
        self._meet_by.pop(rank, None)
        if self._autoscaler is not None:
            self._autoscaler.ended(rank, now, failed=failed)

    def signal(self, number: int) -> None:
        """Sends a signal to the processes that have started joining ranks."""
        for manager, _ in self._managers:
            manager.signal(number)
