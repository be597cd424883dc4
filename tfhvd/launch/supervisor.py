"""The launcher's event loop: mpirun, one connection per rank, signals, and time.

Single-threaded. ``Supervisor.run`` owns mpirun and every connection, and returns when none is left.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Sequence

from tfhvd.launch import children, cores, debugging, hang_report, orphans, stopping, wire
from tfhvd.launch.ending import Ending, Rank, first_failure, report, signal_name
from tfhvd.launch.hang_watch import HangWatch
from tfhvd.launch.output import Output
from tfhvd.launch.signals import PASSED_ON, STOPPING, SignalPipe
from tfhvd.watch.snapshot import Snapshot
from tfhvd.watch.verdict import Verdict

FAILURE_GRACE = 3.0  # seconds that the others have to notice a failure and to say so themselves
_LINGER = 2.0  # seconds to hear from workers whose mpirun has ended
_IN_GROUP = (*STOPPING, signal.SIGKILL)


class _Peer:
    """A worker's connection; ``rank`` is known after its hello."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.reader = wire.Reader()
        self.rank: Rank | None = None

    def send(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            self.sock.sendall(data)


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
        self._hang_watch = HangWatch(hang_limit, self._ask, self._on_verdict)
        self._end_hanging = end_hanging
        self._verbose = verbose
        self._select = selectors.DefaultSelector()
        self._ranks: dict[int, Rank] = {}
        self._peers: set[_Peer] = set()
        self._mpirun: subprocess.Popen[bytes] | None = None
        self._mpirun_ended_by_us = False
        self._held_back = bytearray()  # what mpirun said once the job was failing or over
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

    def run(self, argv: Sequence[str], env: dict[str, str]) -> int:
        """Runs mpirun to its end and returns the exit code of tfhvdrun."""
        self._select.register(self._listener, selectors.EVENT_READ, self._on_connect)
        self._select.register(self._signals.fd, selectors.EVENT_READ, self._on_signals)
        if self._debugged is not None:
            self._input = debugging.InputSender(self._select)
        orphans.adopt()
        self._mpirun = mpirun = children.start_mpirun(argv, env)
        for pipe in (mpirun.stdout, mpirun.stderr):
            assert pipe is not None
            fd = pipe.fileno()
            self._select.register(fd, selectors.EVENT_READ, lambda fd=fd: self._on_mpirun(fd))
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
            if not self._steps:
                self._hang_watch.tick(now)
            self._finish_if_all_ended()
            if gone_at is None and mpirun.poll() is not None:
                gone_at = now
            if gone_at is not None and (not self._peers or now > gone_at + _LINGER):
                break
        orphans.sweep()
        return self._conclude(mpirun)

    def _on_signals(self) -> None:
        for number in self._signals.take():
            if number in PASSED_ON:
                self._tell_ranks(number)
            elif number in STOPPING:
                self._stop(number)

    # -- workers -------------------------------------------------------------------------------

    def _on_connect(self) -> None:
        with contextlib.suppress(OSError):
            sock, _ = self._listener.accept()
            sock.settimeout(10)  # for sends; a read happens only when there is something
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            wire.notice_lost_hosts(sock)
            peer = _Peer(sock)
            self._peers.add(peer)
            self._select.register(sock, selectors.EVENT_READ, lambda: self._on_peer(peer))

    def _on_peer(self, peer: _Peer) -> None:
        try:
            data = peer.sock.recv(1 << 16)
            for kind, payload in peer.reader.feed(data):
                self._on_frame(peer, kind, payload)
        except (OSError, wire.WireError, KeyError, TypeError, ValueError):
            data = b""
        if not data:
            self._drop(peer)

    def _drop(self, peer: _Peer) -> None:
        self._select.unregister(peer.sock)
        peer.sock.close()
        self._peers.discard(peer)
        if peer.rank is not None and peer.rank.ending is None:
            self._on_end(peer.rank, Ending(lost=True), time.monotonic())

    def _on_frame(self, peer: _Peer, kind: bytes, payload: bytes) -> None:
        now = time.monotonic()
        if peer.rank is None:
            self._on_hello(peer, kind, payload)
        elif kind == wire.OUTPUT:
            self._output.feed(peer.rank.rank, payload, now, errors=False)
        elif kind == wire.ERRORS:
            peer.rank.hear(payload.decode(errors="replace"), now)
            self._output.feed(peer.rank.rank, payload, now, errors=True)
        elif kind == wire.STUCK:
            self._hang_watch.stuck(now)
        elif kind == wire.VIEW:
            self._hang_watch.view(peer.rank.rank, wire.read_json(payload))
        elif kind == wire.NOTICE:
            peer.rank.leave(now, follows=bool(wire.read_json(payload)["follows"]))
        elif kind == wire.EXIT:
            fields = wire.read_json(payload)
            ago = float(fields.pop("ago", 0.0))
            self._on_end(peer.rank, Ending(**fields), now - ago)

    def _on_hello(self, peer: _Peer, kind: bytes, payload: bytes) -> None:
        fields = wire.read_json(payload)
        rank = int(fields["rank"])
        if kind != wire.HELLO or fields["token"] != self._token or rank in self._ranks:
            raise wire.WireError("not one of our workers")
        peer.rank = self._ranks[rank] = Rank(rank, str(fields["host"]))
        peer.send(wire.frame(wire.WELCOME))
        if self._verbose and fields.get("share"):
            self._say_share(peer.rank.host, int(fields["share"]))
        if self._input is not None and rank == self._debugged:
            self._input.to(peer.send)
        if self._stopped_at is not None:
            peer.send(wire.frame_json(wire.SIGNAL, signal=int(signal.SIGKILL), group=True))

    def _say_share(self, host: str, share: int) -> None:
        text = f"tfhvdrun: each rank on host {host} takes {share} of its cores, unless one of "
        text += f"{', '.join(cores.VARIABLES)} says otherwise (off: --no-share-cores)"
        if text not in self._said:
            self._said.add(text)
            self._say(0, text)

    def _on_end(self, rank: Rank, ending: Ending, at: float) -> None:
        now = time.monotonic()
        rank.end(ending, at, self._stopped_at)
        self._output.finish(rank.rank)
        if self._input is not None and rank.rank == self._debugged:
            self._input.stop()
        if ending.failed and not self._steps:
            self._steps = stopping.plan(now, signal.SIGTERM, self._stop_timeout, FAILURE_GRACE)

    def _finish_if_all_ended(self) -> None:
        ended = [rank for rank in self._ranks.values() if rank.ending is not None]
        if self._over or len(ended) < self._num_proc:
            return
        self._over = True
        for peer in self._peers:
            peer.send(wire.frame(wire.QUIT))
        now = time.monotonic()
        self._steps = stopping.plan_for_mpirun(now + 1.0)

    # -- mpirun --------------------------------------------------------------------------------

    def _on_mpirun(self, fd: int) -> None:
        data = os.read(fd, 1 << 16)
        if not data:
            self._select.unregister(fd)
        elif self._verbose or not (self._over or self._steps):
            self._output.message(data)
        else:
            self._held_back += data

    def _signal_mpirun(self, number: int) -> None:
        assert self._mpirun is not None
        if self._mpirun.poll() is None:
            self._mpirun_ended_by_us = True
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._mpirun.pid, number)

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
        for peer in self._peers:
            if (
                peer.rank is not None
                and peer.rank.ending is None
                and waiting not in ([], [peer.rank])
            ):
                peer.send(wire.frame_json(wire.LOOK, limit=self._stopped_limit))

    def _ask(self, data: bytes) -> list[int]:
        """Asks all workers whose ranks run; returns these ranks."""
        running = [peer for peer in self._peers if peer.rank is not None and not peer.rank.ending]
        for peer in running:
            peer.send(data)
        return [peer.rank.rank for peer in running if peer.rank is not None]

    def _on_verdict(self, found: Verdict, looks: list[list[Snapshot]]) -> None:
        self._say(0, *hang_report.lines(found, looks))
        if self._end_hanging:
            self._trouble = f"the job hangs: {found.kind.value}"
            self._stop(signal.SIGTERM)

    def _do(self, step: stopping.Step, now: float) -> None:
        if step.target == "mpirun":
            self._signal_mpirun(step.signal)
            return
        if self._stopped_at is None:
            self._stopped_at = now
        self._tell_ranks(step.signal)

    def _tell_ranks(self, number: int) -> None:
        data = wire.frame_json(wire.SIGNAL, signal=int(number), group=number in _IN_GROUP)
        for peer in self._peers:
            if peer.rank is not None and peer.rank.ending is None:
                peer.send(data)

    # -- the end -------------------------------------------------------------------------------

    def _conclude(self, mpirun: subprocess.Popen[bytes]) -> int:
        for peer in list(self._peers):
            self._drop(peer)
        pipes = [pipe.fileno() for pipe in (mpirun.stdout, mpirun.stderr) if pipe is not None]
        for key in list(self._select.get_map().values()):
            if key.fd in pipes:
                self._drain(key.fd)
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
        failed = first_failure(self._ranks.values(), self._stopped_at)
        if failed is not None and failed.ending is not None:
            code = failed.ending.exit_code
            if failed.ending.by_mpirun:
                self._explain(mpirun.returncode)
                code = mpirun.returncode if mpirun.returncode > 0 else code
            return self._say(code, *report(failed))
        if len(self._ranks) < self._num_proc:
            return self._never_started(mpirun.returncode)
        return 0

    def _explain(self, code: int) -> None:
        """Shows what mpirun said, and its end: it may know what the ranks do not."""
        self._output.message(bytes(self._held_back))
        if self._mpirun_ended_by_us:
            return
        end = f"was killed by {signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
        self._say(code, f"tfhvdrun: mpirun {end}")

    def _never_started(self, code: int) -> int:
        self._output.message(bytes(self._held_back))
        count = self._num_proc - len(self._ranks)
        return self._say(
            code if code > 0 else 1,
            f"tfhvdrun: error: mpirun ended (exit code {code}) before {count} of "
            f"{self._num_proc} ranks had started; its own messages are above",
        )

    def _drain(self, fd: int) -> None:
        os.set_blocking(fd, False)
        with contextlib.suppress(BlockingIOError, KeyError):
            while fd in self._select.get_map():
                self._on_mpirun(fd)

    def _say(self, code: int, *lines: str) -> int:
        for line in lines:
            self._output.message(line.encode(errors="replace") + b"\n")
        return code
