"""The launcher's event loop: mpirun, one connection per rank, signals, and time.

Single-threaded. ``Supervisor.run`` owns mpirun, or what takes its place, and every connection, and
returns when none is left.
"""

from __future__ import annotations

import contextlib
import functools
import selectors
import signal
import socket
import time
from collections.abc import Callable, Sequence

from tfhvd.launch import cores, debugging, hang_report, inquiry, orphans, stopping, wire
from tfhvd.launch.ending import Ending, Rank, first_failure, report, report_loss, signal_name
from tfhvd.launch.growth import Growth
from tfhvd.launch.hosts import Host
from tfhvd.launch.looks import Looks
from tfhvd.launch.members import Members
from tfhvd.launch.output import Output
from tfhvd.launch.peer import Peer
from tfhvd.launch.peers import Peers
from tfhvd.launch.process_manager import ProcessManager
from tfhvd.launch.recruits import Recruits
from tfhvd.launch.signals import PASSED_ON, STOPPING, SignalPipe
from tfhvd.watch.hang_watch import EARLY, HangWatch, Views
from tfhvd.watch.ranks import ranks_text
from tfhvd.watch.verdict import Verdict

FAILURE_GRACE = 3.0  # seconds that the others have to notice a failure and to say so themselves
# Of an elastic job: seconds until a host that is cut off is lost, and between two looks.
_CUT_OFF, _BEAT = 2.0, 0.5
_LINGER = 2.0  # seconds to hear from workers whose mpirun has ended


class Supervisor:
    """Watches over one job.

    Args:
        num_proc: the number of ranks to expect.
        listener: where workers connect; the supervisor closes it.
        token: what a worker must say first.
        output: where the ranks' output goes.
        signals: those that we are sent.
        start_timeout: seconds until all ranks must have started.
        stop_timeout: seconds between asking ranks to stop and killing them.
        grace: the same, where SIGTERM asks us to stop: ranks may want to save their state.
        stopped_limit: seconds until a rank that is stopped (SIGSTOP) is killed, once another rank
            has come to its end and waits for it; 0: never.
        hang_limit: seconds without progress after which to find out why ranks wait; 0: never.
        end_hanging: whether to end the job then, if it hangs.
        members: who takes part.
        growth: says when and where more ranks are started; None: never.
        start_more: the command line that starts ranks on a host, by their numbers.
        evict_after: seconds after which it goes on without ranks that keep the others, because they
            are stopped or do nothing; 0: never.
        debugged: the rank that gets our stdin, if any.
        verbose: pass on all that mpirun says, also after a failure.
    """

    def __init__(
        self,
        num_proc: int,
        listener: socket.socket,
        token: str,
        output: Output,
        signals: SignalPipe,
        *,
        start_timeout: float,
        stop_timeout: float,
        grace: float,
        stopped_limit: float = 0.0,
        hang_limit: float = 0.0,
        end_hanging: bool = False,
        members: Members | None = None,
        growth: Growth | None = None,
        start_more: Callable[[Host, Sequence[int]], Sequence[str]] = lambda host, ranks: (),
        evict_after: float = 0.0,
        debugged: int | None = None,
        verbose: bool = False,
    ) -> None:
        self._num_proc = num_proc
        self._listener = listener
        self._token = token
        self._output = output
        self._signals = signals
        self._start_timeout = start_timeout
        self._stop_timeout = stop_timeout
        self._grace = grace
        self._stopped_limit = stopped_limit
        self._look_at = 0.0  # when to look for stopped ranks again
        self._lost_at = 0.0  # when to look for lost hosts again
        self._peers = Peers()
        self._looks = Looks(self._peers.tell)
        asks = wire.frame_json(wire.PROBE, limit=EARLY * hang_limit)
        probe = functools.partial(self._peers.tell, asks)
        self._hang_watch = HangWatch(hang_limit, probe, self._looks.take, self._on_verdict)
        self._end_hanging = end_hanging
        self._members = members or Members(num_proc)
        self._recruits = Recruits(
            self._members,
            growth,
            start=lambda host, ranks: self._start_manager(start_more(host, ranks)),
            tell=self._peers.tell,
            kill=lambda rank: self._peers.signal(signal.SIGKILL, {rank}),
            say=lambda text: self._say(0, text),
        )
        self._evict_after = evict_after
        self._verbose = verbose
        self._select = selectors.DefaultSelector()
        self._ranks: dict[int, Rank] = {}
        self._manager: ProcessManager | None = None
        self._steps: list[stopping.Step] = []
        self._stopped_at: float | None = None  # when ranks were first told to stop
        self._stop_signal: int | None = None  # the signal that asked us to stop
        self._trouble: str | None = None  # the launcher's own reason to stop
        self._over = False
        self._said: set[str] = set()
        self._debugged = debugged
        self._input: debugging.InputSender | None = None

    @property
    def interrupted(self) -> bool:
        """Whether somebody, not a failure, has ended the job."""
        return self._stop_signal is not None and self._trouble is None

    # -- the loop ------------------------------------------------------------------------------

    def run(self, argv: Sequence[str], env: dict[str, str], manager: str = "mpirun") -> int:
        """Runs what starts the ranks to its end; returns the exit code of tfhvdrun.

        Args:
            argv: its command line.
            env: its environment.
            manager: what people know it as.
        """
        self._select.register(self._listener, selectors.EVENT_READ, self._on_connect)
        self._select.register(self._signals.fd, selectors.EVENT_READ, self._on_signals)
        if self._debugged is not None:
            self._input = debugging.InputSender(self._select)
        orphans.adopt()
        self._start_manager = lambda words: ProcessManager(
            manager,
            words,
            env,
            self._select,
            self._output,
            lambda: not self._verbose and bool(self._over or self._steps),
        )
        self._manager = self._start_manager(argv)
        give_up = time.monotonic() + self._start_timeout
        gone_at = None
        while True:
            for key, _ in self._select.select(timeout=0.02 if self._output.waiting() else 0.1):
                key.data()
            now = time.monotonic()
            self._output.tick(now)
            if self._output.broken and self._stop_signal is None:
                self._stop(signal.SIGPIPE)
            if now > give_up and len(self._ranks) < self._num_proc and not self._steps:
                self._give_up()
            for step in stopping.take_due(self._steps, now):
                self._do(step, now)
            if self._stopped_limit and now >= self._look_at:
                self._look_for_stopped(now)
            if now >= self._lost_at:
                self._look_for_lost(now)
            self._looks.tick(now)
            if not self._steps:
                self._hang_watch.tick(now)
            self._recruits.tick(now, ends=self._over or bool(self._steps))
            self._finish_if_all_ended()
            if gone_at is None and self._manager.has_ended and self._recruits.have_ended:
                gone_at = now
            if gone_at is not None and (not self._peers or now > gone_at + _LINGER):
                break
        orphans.sweep()
        return self._conclude(self._manager)

    def _on_signals(self) -> None:
        for number in self._signals.take():
            if number in PASSED_ON:
                self._peers.signal(number)
            elif number in STOPPING:
                self._stop(number)

    # -- workers -------------------------------------------------------------------------------

    def _on_connect(self) -> None:
        with contextlib.suppress(OSError):
            sock, _ = self._listener.accept()
            sock.settimeout(10)  # for sends; a read happens only when there is something
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            wire.notice_lost_hosts(sock)
            peer = Peer(sock)
            self._peers.add(peer)
            self._select.register(sock, selectors.EVENT_READ, lambda: self._on_peer(peer))

    def _on_peer(self, peer: Peer) -> None:
        try:
            data = peer.sock.recv(1 << 16)
            for kind, payload in peer.reader.feed(data):
                self._on_frame(peer, kind, payload)
        except (OSError, wire.WireError, KeyError, TypeError, ValueError):
            data = b""
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
        if kind == wire.ASK and wire.read_json(payload)["token"] == self._token:
            self._looks.take(now, functools.partial(inquiry.answer, peer.send))
        elif peer.rank is None:
            self._on_hello(peer, kind, payload)
        elif kind == wire.OUTPUT:
            self._output.feed(peer.rank.rank, payload, now, errors=False)
        elif kind == wire.ERRORS:
            peer.rank.hear(payload.decode(errors="replace"), now)
            self._output.feed(peer.rank.rank, payload, now, errors=True)
        elif kind == wire.STUCK:
            self._hang_watch.stuck(now)
        elif kind == wire.VIEW:
            self._looks.view(peer.rank.rank, wire.read_json(payload))
        elif kind == wire.JOINING:
            self._recruits.on_joining(peer.rank, wire.read_json(payload), now)
        elif kind == wire.NOTICE:
            peer.rank.leave(now, follows=bool(wire.read_json(payload)["follows"]))
        elif kind == wire.EXIT:
            fields = wire.read_json(payload)
            ago = float(fields.pop("ago", 0.0))
            self._on_end(peer.rank, Ending(**fields), now - ago)

    def _on_hello(self, peer: Peer, kind: bytes, payload: bytes) -> None:
        fields = wire.read_json(payload)
        rank = int(fields["rank"])
        if kind != wire.HELLO or fields["token"] != self._token or rank in self._ranks:
            raise wire.WireError("not one of our workers")
        comes_later = rank >= self._num_proc
        if comes_later and not self._recruits.heard(rank):
            raise wire.WireError("not one that we have started")
        peer.rank = self._ranks[rank] = Rank(rank, str(fields["host"]))
        peer.send(wire.frame(wire.WELCOME))
        if comes_later:
            peer.send(self._members.comes(rank, str(fields["listens_at"])))
        elif fields.get("listens_at"):
            self._peers.tell(self._members.listens(rank, str(fields["listens_at"])))
        share = cores.share_text(peer.rank.host, fields.get("share") or 0)
        if self._verbose and share and share not in self._said:
            self._said.add(share)
            self._say(0, share)
        if self._input is not None and rank == self._debugged:
            self._input.to(peer.send)
        if self._stopped_at is not None:
            peer.send(wire.frame_json(wire.SIGNAL, signal=int(signal.SIGKILL), group=True))

    def _on_end(self, rank: Rank, ending: Ending, at: float) -> None:
        now = time.monotonic()
        rank.end(ending, at, self._stopped_at)
        self._output.finish(rank.rank)
        if self._input is not None and rank.rank == self._debugged:
            self._input.stop()
        if self._steps:
            return
        ranks = self._ranks.values()
        left = [each.rank for each in ranks if each.ending is None and each.left_at is None]
        took_part = rank.rank in self._members.present
        self._peers.tell(self._members.end(rank.rank, left, failed=ending.failed))
        self._recruits.ended(rank.rank, now, failed=ending.failed)
        if rank.rank in self._members.lost:
            of = self._members.most
            self._say(0, *report_loss(rank, len(self._members.present), of, took_part=took_part))
        elif ending.failed and took_part:
            self._say(0, *rank.said_at_once())
            self._steps = stopping.plan(now, signal.SIGTERM, self._stop_timeout, FAILURE_GRACE)

    def _finish_if_all_ended(self) -> None:
        running = {rank.rank for rank in self._ranks.values() if rank.ending is None}
        if self._over or len(self._ranks) < self._num_proc:
            return
        if running and running.isdisjoint(self._members.present):
            self._peers.signal(signal.SIGKILL, only=running)  # they wait to be let in
        if running:
            return
        self._over = True
        self._peers.quit()
        self._steps = stopping.plan_for_mpirun(time.monotonic() + 1.0)

    # -- stopping ------------------------------------------------------------------------------

    def _stop(self, number: int) -> None:
        """We were asked to stop: the first time politely, the second time at once."""
        first = number if number in STOPPING else signal.SIGTERM
        timeout = self._stop_timeout
        if self._stop_signal is not None:
            first = signal.SIGKILL
        elif number == signal.SIGTERM and self._trouble is None:
            timeout = self._grace
            self._say(0, f"tfhvdrun: SIGTERM: the ranks have {timeout:g} s to end by themselves")
        self._stop_signal = self._stop_signal or number
        now = time.monotonic()
        self._steps = stopping.plan(now, first, timeout)
        if len(self._ranks) < self._num_proc:  # Ranks that have not started cannot be told.
            self._steps += stopping.plan_for_mpirun(now)

    def _give_up(self) -> None:
        missing = sorted(set(range(self._num_proc)) - set(self._ranks))
        some = ", ".join(map(str, missing[:8])) + (", ..." if len(missing) > 8 else "")
        self._trouble = (
            f"{len(missing)} of {self._num_proc} ranks have not started after "
            f"{self._start_timeout:g} s (rank {some}). tfhvd doctor, with the -np and -H of this "
            "job, finds out why. More time: --start-timeout S; what mpirun says: -v"
        )
        self._stop(signal.SIGTERM)

    def _look_for_stopped(self, now: float) -> None:
        """Looks at the ranks that others, which have come to their end, wait for."""
        self._look_at = now + max(1.0, self._stopped_limit / 4)
        ranks = self._ranks.values()
        waiting = [rank for rank in ranks if rank.left_at is not None or rank.ending is not None]
        for peer in self._peers.running():
            if waiting not in ([], [peer.rank]):
                peer.send(wire.frame_json(wire.LOOK, limit=self._stopped_limit))

    def _look_for_lost(self, now: float) -> None:
        self._lost_at = now + (_BEAT if self._members.elastic else 1.0)
        after = _CUT_OFF if self._members.elastic else wire.LOST_AFTER
        for peer in self._peers.with_lost_host(after):
            self._drop(peer)
        if self._members.elastic:
            self._peers.tell(wire.frame(wire.BEAT))
        if self._evict_after:
            self._peers.tell(wire.frame_json(wire.LOOK, limit=self._evict_after))

    def _on_verdict(self, found: Verdict, looks: list[Views]) -> None:
        self._say(0, *hang_report.lines(found, looks))
        present = set(self._members.present)
        evicted = hang_report.named(found, looks) & present  # one may be lost by now
        if self._evict_after and 0 < len(evicted) < len(present):
            self._say(0, f"tfhvdrun: --evict-after: {ranks_text(sorted(evicted))} killed")
            self._peers.signal(signal.SIGKILL, only=evicted)
            return
        if self._end_hanging:
            self._trouble = f"the job hangs: {found.kind.value}"
            self._stop(signal.SIGTERM)

    def _do(self, step: stopping.Step, now: float) -> None:
        if step.target == "mpirun":
            assert self._manager is not None
            self._manager.signal(step.signal)
            self._recruits.signal(step.signal)
            return
        if self._stopped_at is None:
            self._stopped_at = now
        self._peers.signal(step.signal)

    # -- the end -------------------------------------------------------------------------------

    def _conclude(self, manager: ProcessManager) -> int:
        for peer in self._peers.all():
            self._drop(peer)
        manager.read_the_rest()
        self._recruits.close()
        self._select.close()
        self._listener.close()
        self._output.close()
        if self._trouble is not None:
            return self._say(1, f"tfhvdrun: error: {self._trouble}")
        if self._stop_signal == signal.SIGPIPE:
            return 128 + signal.SIGPIPE
        if self._stop_signal is not None:
            text = f"tfhvdrun: stopped by {signal_name(self._stop_signal)}"
            return self._say(128 + self._stop_signal, text)
        ranks = [rank for rank in self._ranks.values() if rank.rank in self._members.present]
        failed = first_failure(ranks, self._stopped_at)
        if failed is not None and failed.ending is not None:
            code = failed.ending.exit_code
            if failed.ending.by_mpirun:
                self._say(0, *manager.end_in_words())  # it may know what the ranks do not
                code = manager.code if manager.code > 0 else code
            return self._say(code, *report(failed, self._ranks.values()))
        missing = self._num_proc - len(self._ranks)
        if missing > 0:
            text = manager.end_before_ranks_in_words(missing, self._num_proc)
            return self._say(manager.code if manager.code > 0 else 1, text)
        return 0

    def _say(self, code: int, *lines: str) -> int:
        for line in lines:
            self._output.message(line.encode(errors="replace") + b"\n")
        return code
