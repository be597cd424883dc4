"""The launcher's event loop: mpirun, one connection per rank, signals, and time.

Single-threaded. ``Supervisor.run`` owns mpirun (or spawn.py, without an MPI) and every connection,
and returns when none is left. The supervisor of an elastic job may take over from a failed one.
"""

from __future__ import annotations

import selectors
import signal
import socket
import time
from collections.abc import Callable, Sequence

from tfhvd.hang.classifier import Verdict
from tfhvd.hang.detector import Views
from tfhvd.launch.failover.takeover import Handover, Takeover, without_lines
from tfhvd.launch.state import shutdown_plan
from tfhvd.launch.state.hosts import Host
from tfhvd.launch.state.rank_state import Ending, Rank, report_loss
from tfhvd.launch.state.roster import Roster
from tfhvd.launch.state.scaling import Autoscaler
from tfhvd.launch.state.supervisor_config import SupervisorConfig
from tfhvd.launch.stdio import debugger_stdin
from tfhvd.launch.stdio.output import Output
from tfhvd.launch.supervisor import hang_report
from tfhvd.launch.supervisor.connection import Connection
from tfhvd.launch.supervisor.connections import Connections
from tfhvd.launch.supervisor.job_monitor import JobMonitor
from tfhvd.launch.supervisor.joiners import Joiners
from tfhvd.launch.supervisor.liveness import Liveness
from tfhvd.launch.supervisor.process_manager import ManagerOutput, ProcessManager
from tfhvd.launch.supervisor.summary import conclude, not_started
from tfhvd.network.listener import Door
from tfhvd.protocol import hello, messages
from tfhvd.protocol.messages import FrameKind
from tfhvd.system import cpu_affinity, popen, subreaper
from tfhvd.system.formatting import ranks_text
from tfhvd.system.signal_pipe import PASSED_ON, STOPPING, SignalPipe

FAILURE_GRACE = 3.0  # seconds for the other ranks to notice a failure and to report it themselves
# Frames that do not change the state for the next supervisor.
_PASSING = {FrameKind.OUTPUT, FrameKind.ERRORS, FrameKind.HIDDEN_ERRORS, *JobMonitor.KINDS}
_PASSING |= {FrameKind.STATUS_QUERY, FrameKind.STOPPED, FrameKind.HEARTBEAT}
_LINGER = 2.0  # seconds to wait for the reports of agents when mpirun has ended


class Supervisor:
    """The supervisor of one job.

    Args:
        config: the supervisor's configuration.
        listener: the socket to which agents connect; the supervisor owns it from now on.
        output: prints the ranks' output.
        signals: receives the signals to this process.
        takeover: the state from the last supervisor, and for the next one.
        members: the roster of a new job; without one, the ranks from 0 to the number of ranks.
        autoscaler: decides when and where more ranks are started; None: never.
        start_more: returns the command line that starts ranks on a host, by their numbers.
        debugged: the rank that gets the launcher's stdin, if any.
    """

    def __init__(
        self,
        config: SupervisorConfig,
        listener: socket.socket,
        output: Output,
        signals: SignalPipe,
        takeover: Takeover,
        *,
        members: Roster | None = None,
        autoscaler: Autoscaler | None = None,
        start_more: Callable[[Host, Sequence[int]], Sequence[str]] = lambda host, ranks: (),
        debugged: int | None = None,
    ) -> None:
        self._config, self._num_proc, self._timeouts = config, config.num_proc, config.limits
        self._door = Door(listener, config.token, messages.ABOUT)
        self._output, self._signals = output, signals
        self._connections = Connections()
        self._takeover = takeover
        handover = takeover.handover or Handover(members or Roster(self._num_proc))
        self._members, self._stopping, self._ranks = (
            handover.members,
            handover.stopping,
            handover.ranks,
        )
        self._monitor = JobMonitor(
            members=self._members,
            limits=self._timeouts,
            ask=self._connections.tell,
            say=lambda text: self._say(text),
            on_hang=self._on_verdict,
        )
        self._liveness = Liveness(
            self._connections,
            elastic=self._members.elastic,
            stopped_limit=self._timeouts.stopped,
            evict_after=self._timeouts.evict,
        )
        self._joiners = Joiners(
            self._members,
            autoscaler,
            start=lambda host, ranks: self._start(start_more(host, ranks)),
            tell=self._connections.tell,
            kill=lambda rank: self._connections.signal(signal.SIGKILL, {rank}),
            say=lambda text: self._say(text),
        )
        self._select = selectors.DefaultSelector()
        self._says = ManagerOutput(
            self._select,
            output,
            lambda: not config.verbose and bool(self._stopping.over or self._stopping.steps),
        )
        self._manager: ProcessManager | None = None
        self._said: set[str] = set()
        self._debugged = debugged
        self._input: debugger_stdin.InputSender | None = None

    @property
    def interrupted(self) -> bool:
        """Whether the job must not be restarted."""
        return self._stopping.interrupted

    def run(self, argv: Sequence[str], env: dict[str, str], manager: str = "mpirun") -> int:
        """Runs the program that starts the ranks to its end; returns the exit code of tfhvdrun.

        Args:
            argv: the program's command line.
            env: its environment.
            manager: its name for messages.
        """
        self._select.register(self._door, selectors.EVENT_READ, lambda: None)
        self._select.register(self._signals.fd, selectors.EVENT_READ, self._on_signals)
        if self._debugged is not None:
            self._input = debugger_stdin.InputSender(self._select)
        subreaper.adopt()
        self._name, self._env = manager, env
        self._manager = self._begin(argv)
        give_up = time.monotonic() + self._timeouts.start
        gone_at = None
        while True:
            self._connections.tell(self._takeover.write(self._handover))
            self._say(*self._takeover.news())
            for key, _ in self._select.select(timeout=0.02 if self._output.waiting() else 0.1):
                key.data()
            self._let_in()
            now = time.monotonic()
            self._output.tick(now)
            if self._takeover.undecided:
                self._take_over(now)
                continue
            if self._output.broken and self._stopping.signal is None:
                self._stop(signal.SIGPIPE)
            if now > give_up and len(self._ranks) < self._num_proc and not self._stopping.steps:
                self._fail(not_started(self._ranks, self._num_proc, self._timeouts.start))
            if not self._takeover.awaits_some:  # an agent that connects later would miss the step
                for step in shutdown_plan.take_due(self._stopping.steps, now):
                    self._do(step, now)
            for peer in self._liveness.tick(now, self._ranks.values()):
                self._drop(peer)
            for number in self._takeover.overdue(now):
                rank = self._ranks.setdefault(number, Rank(number, "that is not known"))
                self._on_end(rank, Ending(lost=True), now)
            self._monitor.tick(now, ends=bool(self._stopping.steps))
            self._joiners.tick(now, ends=self._stopping.over or bool(self._stopping.steps))
            self._finish_if_all_ended()
            if gone_at is None and self._manager.has_ended and self._joiners.have_ended:
                gone_at = now
            if gone_at is not None and (not self._connections or now > gone_at + _LINGER):
                break
        subreaper.sweep()
        return self._conclude(self._manager)

    def _begin(self, argv: Sequence[str]) -> ProcessManager:
        """Starts the ranks, or takes over the ranks of the last supervisor."""
        if self._takeover.words is not None:
            self._says.listen(self._takeover.words[0])
        if self._takeover.handover is None:
            return self._start(argv)
        self._say(self._takeover.beginning())
        self._joiners.take_up(self._takeover.handover.joiners, self._adopt)
        return self._adopt(self._takeover.handover.manager)

    def _start(self, argv: Sequence[str]) -> ProcessManager:
        self._takeover.changed = True
        into = None if self._takeover.words is None else self._takeover.words[1]
        return ProcessManager(self._name, popen.start_manager(argv, self._env, into), self._says)

    def _adopt(self, pid: int) -> ProcessManager:
        process = self._takeover.adopt(pid, self._stopping)
        return ProcessManager(self._name, process, self._says)

    def _take_over(self, now: float) -> None:
        """Listens to the connected agents when it is decided whether the job continues here."""
        may = self._takeover.decide(self._members.present, now)
        if may is None:
            return
        for peer in self._connections.named():
            self._listen_to(peer)
        away, present = self._takeover.turns_away, self._members.present
        self._connections.signal(signal.SIGKILL, only={r for r in self._ranks if away(r, present)})
        if not may:
            self._fail(shutdown_plan.CUT_OFF)

    def _handover(self) -> Handover:
        assert self._manager is not None
        ranks, joiners = without_lines(self._ranks.values()), self._joiners.state
        return Handover(self._members, self._stopping, ranks, self._manager.pid, joiners)

    def _on_signals(self) -> None:
        self._takeover.changed = True
        for number in self._signals.take():
            if number in PASSED_ON:
                self._connections.signal(number)
            elif number in STOPPING:
                self._stop(number)

    def _let_in(self) -> None:
        for guest in self._door.take():
            peer = Connection.connected(guest.sock, again=self._takeover.takes_over)
            self._connections.add(peer)
            self._listen_to(peer)

    def _listen_to(self, peer: Connection) -> None:
        self._select.register(peer.sock, selectors.EVENT_READ, lambda: self._on_peer(peer))

    def _on_peer(self, peer: Connection) -> None:
        try:
            frames = peer.receive()
            for kind, payload in frames or ():
                self._on_frame(peer, kind, payload)
        except Exception as error:  # a message that cannot be read harms its sender alone
            frames = None
            self._say(peer.sent_what_is_unreadable(error))
        if frames is None:
            self._drop(peer)

    def _drop(self, peer: Connection) -> None:
        self._select.unregister(peer.sock)
        peer.sock.close()
        self._connections.discard(peer)
        if peer.rank is not None and peer.rank.ending is None:
            self._on_end(peer.rank, Ending(lost=True), time.monotonic())

    def _on_frame(self, peer: Connection, kind: FrameKind, payload: bytes) -> None:
        now = time.monotonic()
        self._takeover.changed |= kind not in _PASSING
        if kind == FrameKind.STATUS_QUERY:
            messages.read_json(payload)  # raises on a malformed query: each answer costs a round
            self._monitor.answer(peer.send, now)
        elif peer.rank is None:
            self._on_hello(peer, kind, payload)
        elif kind in (FrameKind.OUTPUT, FrameKind.ERRORS):
            if kind == FrameKind.ERRORS:
                peer.rank.hear(payload.decode(errors="replace"), now)
            self._output.feed(peer.rank.rank, payload, now, errors=kind == FrameKind.ERRORS)
        elif kind == FrameKind.HIDDEN_ERRORS:
            self._output.aside(peer.rank.rank, payload, now)
        elif kind in JobMonitor.KINDS:
            self._monitor.hear(peer.rank.rank, kind, messages.read_json(payload), now)
        elif kind == FrameKind.JOINING:
            self._joiners.on_joining(peer.rank, messages.read_json(payload), now)
        elif kind == FrameKind.STOPPED:
            self._say(peer.rank.halted(**messages.read_json(payload)))
        elif kind == FrameKind.TAKEOVER_STATE_RECEIVED:
            self._takeover.knows(peer.rank.rank, int(messages.read_json(payload)["version"]))
        elif kind == FrameKind.LEAVING:
            peer.rank.leave(now, follows=bool(messages.read_json(payload)["follows"]))
        elif kind == FrameKind.EXIT and peer.rank.ending is None:
            fields = messages.read_json(payload)
            ago = float(fields.pop("ago", 0.0))
            self._on_end(peer.rank, Ending(**fields), now - ago)

    def _on_hello(self, peer: Connection, kind: FrameKind, payload: bytes) -> None:
        said = hello.read(kind, payload)
        rank, again = said.rank, said.again
        awaited = self._takeover.comes(
            rank, said.inherits_at, here=peer.is_here, again=again is not None
        )
        if rank in self._ranks and not awaited:
            raise messages.WireError("it has come before")
        comes_later = rank >= self._num_proc
        if comes_later and not self._joiners.heard(rank) and not awaited:
            raise messages.WireError("not one that we have started")
        peer.rank = self._ranks.setdefault(rank, Rank(rank, said.host))
        peer.send(messages.frame(FrameKind.WELCOME))
        if again is not None and again.started:
            self._connections.tell(self._members.comes_again(rank, said.listens_at, again.line))
        elif comes_later:
            peer.send(self._members.comes(rank, said.listens_at, self._joiners.hosts))
        elif said.listens_at:
            self._connections.tell(self._members.listens(rank, said.listens_at))
        share = cpu_affinity.share_text(peer.rank.host, said.share)
        if self._config.verbose and share and share not in self._said:
            self._said.add(share)
            self._say(share)
        if self._input is not None and rank == self._debugged:
            self._input.to(peer.send)
        is_late = self._stopping.at is not None and again is None
        if is_late or self._takeover.turns_away(rank, self._members.present):
            peer.send(messages.frame_json(FrameKind.SIGNAL, signal=int(signal.SIGKILL), group=True))
        if self._takeover.undecided:
            self._select.unregister(peer.sock)

    def _on_end(self, rank: Rank, ending: Ending, at: float) -> None:
        now = time.monotonic()
        self._takeover.changed = True
        rank.end(ending, at, self._stopping.at)
        self._output.finish(rank.rank)
        if self._input is not None and rank.rank == self._debugged:
            self._input.stop()
        if self._stopping.steps:
            return
        ranks = self._ranks.values()
        if not self._takeover.may_lose(rank, ending, ranks, self._members.present):
            self._fail(shutdown_plan.CUT_OFF)
            return
        left = [each.rank for each in ranks if each.ending is None and each.left_at is None]
        took_part, failed = rank.rank in self._members.present, ending.failed and not ending.stops
        self._connections.tell(self._members.end(rank.rank, left, failed=failed))
        self._joiners.ended(rank.rank, now, failed=failed or not took_part)
        if rank.rank in self._members.lost:
            of = self._members.most
            self._say(*report_loss(rank, len(self._members.present), of, took_part=took_part))
        elif ending.failed and took_part:
            self._say(*rank.said_at_once())
            limit = self._timeouts.grace if ending.stops else self._timeouts.stop
            self._stopping.steps = shutdown_plan.plan(now, signal.SIGTERM, limit, FAILURE_GRACE)

    def _finish_if_all_ended(self) -> None:
        if self._stopping.over or len(self._ranks) < self._num_proc:
            return
        running = {rank.rank for rank in self._ranks.values() if rank.ending is None}
        if running and running.isdisjoint(self._members.present):
            self._connections.signal(signal.SIGKILL, only=running)  # they wait for admission
        if running:
            return
        self._stopping.over = True
        self._connections.quit()
        self._stopping.steps = shutdown_plan.plan_for_mpirun(time.monotonic() + 1.0)

    def _stop(self, number: int) -> None:
        """Stops the job: politely at the first signal, at once at the second."""
        first = number if number in STOPPING else signal.SIGTERM
        timeout = self._timeouts.stop
        if self._stopping.signal is not None:
            first = signal.SIGKILL
        elif number == signal.SIGTERM and self._stopping.trouble is None:
            timeout = self._timeouts.grace
            self._say(f"tfhvdrun: SIGTERM: the ranks have {timeout:g} s to end by themselves")
        self._stopping.signal = self._stopping.signal or number
        now = time.monotonic()
        self._stopping.steps = shutdown_plan.plan(now, first, timeout)
        if len(self._ranks) < self._num_proc:  # ranks without an agent can get no signal
            self._stopping.steps += shutdown_plan.plan_for_mpirun(now)

    def _fail(self, trouble: str) -> None:
        """Ends the job because the launcher has found trouble."""
        self._stopping.trouble = trouble
        self._stop(signal.SIGTERM)

    def _on_verdict(self, found: Verdict, looks: list[Views]) -> None:
        self._say(*hang_report.lines(found, looks))
        present = set(self._members.present)
        evicted = hang_report.named(found, looks) & present  # some may have failed since
        if self._timeouts.evict and 0 < len(evicted) < len(present):
            self._say(f"tfhvdrun: --evict-after: {ranks_text(sorted(evicted))} killed")
            self._connections.signal(signal.SIGKILL, only=evicted)
        elif self._config.end_hanging:
            self._fail(f"the job hangs: {found.kind.value}")

    def _do(self, step: shutdown_plan.Step, now: float) -> None:
        self._takeover.changed = True
        if step.target == "mpirun":
            assert self._manager is not None
            self._manager.signal(step.signal)
            self._joiners.signal(step.signal)
            return
        if self._stopping.at is None:
            self._stopping.at = now
        self._connections.signal(step.signal)

    def _conclude(self, manager: ProcessManager) -> int:
        for peer in self._connections.all():
            self._drop(peer)
        self._says.read_the_rest()
        self._door.close()
        self._select.close()
        self._output.close()
        ranks, missing = self._ranks.values(), self._num_proc - len(self._ranks)
        code, lines = conclude(manager, self._stopping, ranks, self._members.present, missing)
        self._say(*lines)
        return code

    def _say(self, *lines: str) -> None:
        for line in lines:
            self._output.message(line.encode(errors="replace") + b"\n")
