"""The launcher's event loop: mpirun, one connection per rank, signals, and time.

Single-threaded. ``Supervisor.run`` owns mpirun, or what takes its place, and every connection, and
returns when none is left. That of an elastic job may take over from another one, which is lost.
"""

from __future__ import annotations

import selectors
import signal
import socket
import time
from collections.abc import Callable, Sequence

from tfhvd.launch import children, cores, debugging, hang_report, orphans, stopping, wire
from tfhvd.launch.conclusion import conclude, not_started
from tfhvd.launch.door import Door
from tfhvd.launch.ending import Ending, Rank, report_loss
from tfhvd.launch.growth import Growth
from tfhvd.launch.hosts import Host
from tfhvd.launch.members import Members
from tfhvd.launch.orders import Orders
from tfhvd.launch.output import Output
from tfhvd.launch.peer import Peer
from tfhvd.launch.peers import Peers
from tfhvd.launch.process_manager import ManagerOutput, ProcessManager
from tfhvd.launch.recruits import Recruits
from tfhvd.launch.rounds import Rounds
from tfhvd.launch.signals import PASSED_ON, STOPPING, SignalPipe
from tfhvd.launch.succession import Estate, Succession, without_lines
from tfhvd.launch.watches import Watches
from tfhvd.watch.hang_watch import Views
from tfhvd.watch.ranks import ranks_text
from tfhvd.watch.verdict import Verdict

FAILURE_GRACE = 3.0  # seconds that the others have to notice a failure and to say so themselves
# What says nothing that the next supervisor must know.
_PASSING = (wire.OUTPUT, wire.ERRORS, wire.VIEW, wire.STUCK, wire.ASK, wire.HALTED, wire.BEAT)
_LINGER = 2.0  # seconds to hear from workers whose mpirun has ended


class Supervisor:
    """Watches over one job.

    Args:
        orders: what it is to do.
        listener: where workers connect, which is ours from now on.
        output: where the ranks' output goes.
        signals: those that we are sent.
        succession: what it leaves to the next one, and has from the one before.
        members: who takes part, if there was none before.
        growth: says when and where more ranks are started; None: never.
        start_more: the command line that starts ranks on a host, by their numbers.
        debugged: the rank that gets our stdin, if any.
    """

    def __init__(
        self,
        orders: Orders,
        listener: socket.socket,
        output: Output,
        signals: SignalPipe,
        succession: Succession,
        *,
        members: Members | None = None,
        growth: Growth | None = None,
        start_more: Callable[[Host, Sequence[int]], Sequence[str]] = lambda host, ranks: (),
        debugged: int | None = None,
    ) -> None:
        self._orders, self._num_proc, self._limits = orders, orders.num_proc, orders.limits
        self._door = Door(listener, orders.token, wire.ABOUT)
        self._output = output
        self._signals = signals
        self._peers = Peers()
        self._succession = succession
        estate = succession.estate or Estate(members or Members(self._num_proc))
        self._members, self._stopping, self._ranks = estate.members, estate.stopping, estate.ranks
        self._watches = Watches(
            members=self._members,
            limits=self._limits,
            ask=self._peers.tell,
            say=lambda text: self._say(text),
            on_hang=self._on_verdict,
        )
        self._rounds = Rounds(
            self._peers,
            elastic=self._members.elastic,
            stopped_limit=self._limits.stopped,
            evict_after=self._limits.evict,
        )
        self._recruits = Recruits(
            self._members,
            growth,
            start=lambda host, ranks: self._start(start_more(host, ranks)),
            tell=self._peers.tell,
            kill=lambda rank: self._peers.signal(signal.SIGKILL, {rank}),
            say=lambda text: self._say(text),
        )
        self._select = selectors.DefaultSelector()
        self._says = ManagerOutput(
            self._select,
            output,
            lambda: not orders.verbose and bool(self._stopping.over or self._stopping.steps),
        )
        self._manager: ProcessManager | None = None
        self._said: set[str] = set()
        self._debugged = debugged
        self._input: debugging.InputSender | None = None

    @property
    def interrupted(self) -> bool:
        """Whether it is not to be started again."""
        return self._stopping.interrupted

    # -- the loop ------------------------------------------------------------------------------

    def run(self, argv: Sequence[str], env: dict[str, str], manager: str = "mpirun") -> int:
        """Runs what starts the ranks to its end; returns the exit code of tfhvdrun.

        Args:
            argv: its command line.
            env: its environment.
            manager: what people know it as.
        """
        self._select.register(self._door, selectors.EVENT_READ, lambda: None)
        self._select.register(self._signals.fd, selectors.EVENT_READ, self._on_signals)
        if self._debugged is not None:
            self._input = debugging.InputSender(self._select)
        orphans.adopt()
        self._name, self._env = manager, env
        self._manager = self._begin(argv)
        give_up = time.monotonic() + self._limits.start
        gone_at = None
        while True:
            self._peers.tell(self._succession.write(self._estate))
            self._say(*self._succession.news())
            for key, _ in self._select.select(timeout=0.02 if self._output.waiting() else 0.1):
                key.data()
            self._let_in()
            now = time.monotonic()
            self._output.tick(now)
            if self._succession.undecided:
                self._take_over(now)
                continue
            if self._output.broken and self._stopping.signal is None:
                self._stop(signal.SIGPIPE)
            if now > give_up and len(self._ranks) < self._num_proc and not self._stopping.steps:
                self._fail(not_started(self._ranks, self._num_proc, self._limits.start))
            if not self._succession.awaits_some:  # whom else it would not reach
                for step in stopping.take_due(self._stopping.steps, now):
                    self._do(step, now)
            for peer in self._rounds.tick(now, self._ranks.values()):
                self._drop(peer)
            for number in self._succession.overdue(now):
                rank = self._ranks.setdefault(number, Rank(number, "that is not known"))
                self._on_end(rank, Ending(lost=True), now)
            self._watches.tick(now, ends=bool(self._stopping.steps))
            self._recruits.tick(now, ends=self._stopping.over or bool(self._stopping.steps))
            self._finish_if_all_ended()
            if gone_at is None and self._manager.has_ended and self._recruits.have_ended:
                gone_at = now
            if gone_at is not None and (not self._peers or now > gone_at + _LINGER):
                break
        orphans.sweep()
        return self._conclude(self._manager)

    def _begin(self, argv: Sequence[str]) -> ProcessManager:
        """Starts the ranks, or takes over those that another supervisor has started."""
        if self._succession.words is not None:
            self._says.listen(self._succession.words[0])
        if self._succession.estate is None:
            return self._start(argv)
        self._say(self._succession.beginning())
        self._recruits.take_up(self._succession.estate.recruits, self._adopt)
        return self._adopt(self._succession.estate.manager)

    def _start(self, argv: Sequence[str]) -> ProcessManager:
        self._succession.changed = True
        into = None if self._succession.words is None else self._succession.words[1]
        return ProcessManager(self._name, children.start_manager(argv, self._env, into), self._says)

    def _adopt(self, pid: int) -> ProcessManager:
        process = self._succession.adopt(pid, self._stopping)
        return ProcessManager(self._name, process, self._says)

    def _take_over(self, now: float) -> None:
        """Hears the ranks that have come, once it is known whether they may go on."""
        may = self._succession.decide(self._members.present, now)
        if may is None:
            return
        for peer in self._peers.named():
            self._listen_to(peer)
        away, present = self._succession.turns_away, self._members.present
        self._peers.signal(signal.SIGKILL, only={r for r in self._ranks if away(r, present)})
        if not may:
            self._fail(stopping.CUT_OFF)

    def _estate(self) -> Estate:
        assert self._manager is not None
        ranks, recruits = without_lines(self._ranks.values()), self._recruits.state
        return Estate(self._members, self._stopping, ranks, self._manager.pid, recruits)

    def _on_signals(self) -> None:
        self._succession.changed = True
        for number in self._signals.take():
            if number in PASSED_ON:
                self._peers.signal(number)
            elif number in STOPPING:
                self._stop(number)

    # -- workers -------------------------------------------------------------------------------

    def _let_in(self) -> None:
        for guest in self._door.take():
            self._peers.add(peer := Peer.connected(guest.sock))
            self._listen_to(peer)

    def _listen_to(self, peer: Peer) -> None:
        self._select.register(peer.sock, selectors.EVENT_READ, lambda: self._on_peer(peer))

    def _on_peer(self, peer: Peer) -> None:
        try:
            data = peer.sock.recv(1 << 16)
            for kind, payload in peer.reader.feed(data):
                self._on_frame(peer, kind, payload)
        except OSError:
            data = b""
        except Exception as error:  # a message that cannot be read harms its sender alone
            data = b""
            self._say(peer.sent_what_is_unreadable(error))
        if not data:
            self._drop(peer)

    def _drop(self, peer: Peer) -> None:
        self._select.unregister(peer.sock)
        peer.sock.close()
        self._peers.discard(peer)
        if peer.rank is not None and peer.rank.ending is None:
            self._on_end(peer.rank, Ending(lost=True), time.monotonic())

    def _on_frame(self, peer: Peer, kind: bytes, payload: bytes) -> None:
        now = time.monotonic()
        self._succession.changed |= kind not in _PASSING
        if kind == wire.ASK:
            self._watches.answer(peer.send, now)
        elif peer.rank is None:
            self._on_hello(peer, kind, payload)
        elif kind in (wire.OUTPUT, wire.ERRORS):
            if kind == wire.ERRORS:
                peer.rank.hear(payload.decode(errors="replace"), now)
            self._output.feed(peer.rank.rank, payload, now, errors=kind == wire.ERRORS)
        elif kind == wire.STUCK:
            self._watches.stuck(float(wire.read_json(payload)["limit"]), now)
        elif kind == wire.VIEW:
            self._watches.view(peer.rank.rank, wire.read_json(payload))
        elif kind == wire.JOINING:
            self._recruits.on_joining(peer.rank, wire.read_json(payload), now)
        elif kind == wire.HALTED:
            self._say(peer.rank.halted(**wire.read_json(payload)))
        elif kind == wire.KNOWS:
            self._succession.knows(peer.rank.rank, int(wire.read_json(payload)["version"]))
        elif kind == wire.NOTICE:
            peer.rank.leave(now, follows=bool(wire.read_json(payload)["follows"]))
        elif kind == wire.EXIT and peer.rank.ending is None:
            fields = wire.read_json(payload)
            ago = float(fields.pop("ago", 0.0))
            self._on_end(peer.rank, Ending(**fields), now - ago)

    def _on_hello(self, peer: Peer, kind: bytes, payload: bytes) -> None:
        fields = wire.read_json(payload)
        rank, again = int(fields["rank"]), fields.get("again")
        if kind != wire.HELLO:
            raise wire.WireError("no hello")
        awaited = self._succession.comes(
            rank, str(fields.get("inherits_at") or ""), here=peer.is_here, again=again is not None
        )
        if rank in self._ranks and not awaited:
            raise wire.WireError("it has come before")
        comes_later = rank >= self._num_proc
        if comes_later and not self._recruits.heard(rank) and not awaited:
            raise wire.WireError("not one that we have started")
        peer.rank = self._ranks.setdefault(rank, Rank(rank, str(fields["host"])))
        peer.send(wire.frame(wire.WELCOME))
        if again is not None and again["started"]:
            at, line = str(fields["listens_at"]), str(again["line"])
            self._peers.tell(self._members.comes_again(rank, at, line))
        elif comes_later:
            peer.send(self._members.comes(rank, str(fields["listens_at"]), self._recruits.hosts))
        elif fields.get("listens_at"):
            self._peers.tell(self._members.listens(rank, str(fields["listens_at"])))
        share = cores.share_text(peer.rank.host, fields.get("share") or 0)
        if self._orders.verbose and share and share not in self._said:
            self._said.add(share)
            self._say(share)
        if self._input is not None and rank == self._debugged:
            self._input.to(peer.send)
        is_late = self._stopping.at is not None and again is None
        if is_late or self._succession.turns_away(rank, self._members.present):
            peer.send(wire.frame_json(wire.SIGNAL, signal=int(signal.SIGKILL), group=True))
        if self._succession.undecided:
            self._select.unregister(peer.sock)

    def _on_end(self, rank: Rank, ending: Ending, at: float) -> None:
        now = time.monotonic()
        self._succession.changed = True
        rank.end(ending, at, self._stopping.at)
        self._output.finish(rank.rank)
        if self._input is not None and rank.rank == self._debugged:
            self._input.stop()
        if self._stopping.steps:
            return
        ranks = self._ranks.values()
        if not self._succession.may_lose(rank, ending, ranks, self._members.present):
            self._fail(stopping.CUT_OFF)
            return
        left = [each.rank for each in ranks if each.ending is None and each.left_at is None]
        took_part = rank.rank in self._members.present
        self._peers.tell(self._members.end(rank.rank, left, failed=ending.failed))
        self._recruits.ended(rank.rank, now, failed=ending.failed or not took_part)
        if rank.rank in self._members.lost:
            of = self._members.most
            self._say(*report_loss(rank, len(self._members.present), of, took_part=took_part))
        elif ending.failed and took_part:
            self._say(*rank.said_at_once())
            self._stopping.steps = stopping.plan(
                now, signal.SIGTERM, self._limits.stop, FAILURE_GRACE
            )

    def _finish_if_all_ended(self) -> None:
        if self._stopping.over or len(self._ranks) < self._num_proc:
            return
        running = {rank.rank for rank in self._ranks.values() if rank.ending is None}
        if running and running.isdisjoint(self._members.present):
            self._peers.signal(signal.SIGKILL, only=running)  # they wait to be let in
        if running:
            return
        self._stopping.over = True
        self._peers.quit()
        self._stopping.steps = stopping.plan_for_mpirun(time.monotonic() + 1.0)

    # -- stopping ------------------------------------------------------------------------------

    def _stop(self, number: int) -> None:
        """We were asked to stop: the first time politely, the second time at once."""
        first = number if number in STOPPING else signal.SIGTERM
        timeout = self._limits.stop
        if self._stopping.signal is not None:
            first = signal.SIGKILL
        elif number == signal.SIGTERM and self._stopping.trouble is None:
            timeout = self._limits.grace
            self._say(f"tfhvdrun: SIGTERM: the ranks have {timeout:g} s to end by themselves")
        self._stopping.signal = self._stopping.signal or number
        now = time.monotonic()
        self._stopping.steps = stopping.plan(now, first, timeout)
        if len(self._ranks) < self._num_proc:  # Ranks that have not started cannot be told.
            self._stopping.steps += stopping.plan_for_mpirun(now)

    def _fail(self, trouble: str) -> None:
        """Ends the job for a reason of our own."""
        self._stopping.trouble = trouble
        self._stop(signal.SIGTERM)

    def _on_verdict(self, found: Verdict, looks: list[Views]) -> None:
        self._say(*hang_report.lines(found, looks))
        present = set(self._members.present)
        evicted = hang_report.named(found, looks) & present  # one may be lost by now
        if self._limits.evict and 0 < len(evicted) < len(present):
            self._say(f"tfhvdrun: --evict-after: {ranks_text(sorted(evicted))} killed")
            self._peers.signal(signal.SIGKILL, only=evicted)
        elif self._orders.end_hanging:
            self._fail(f"the job hangs: {found.kind.value}")

    def _do(self, step: stopping.Step, now: float) -> None:
        self._succession.changed = True
        if step.target == "mpirun":
            assert self._manager is not None
            self._manager.signal(step.signal)
            self._recruits.signal(step.signal)
            return
        if self._stopping.at is None:
            self._stopping.at = now
        self._peers.signal(step.signal)

    # -- the end -------------------------------------------------------------------------------

    def _conclude(self, manager: ProcessManager) -> int:
        for peer in self._peers.all():
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
