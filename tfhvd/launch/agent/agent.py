"""The per-rank agent: starts the rank, forwards its output and signals, and reports its end.

mpirun starts one agent for each rank. The agent starts the command as its only child, and stays
until the launcher says that the job is over. So the launcher, not mpirun, decides when a failed job
ends. The agent leaves no process behind: it ends its rank when it gets a signal to stop, and when
the launcher or mpirun has ended. If the agent is killed, the kernel kills the rank.

It is run by path with ``python -E -S``, and imports the standard library alone.
"""

from __future__ import annotations

import sys

if __name__ == "__main__" and not __package__:
    # Run by path: the names in this folder must not hide the standard library's.
    sys.path[:] = [*sys.path[1:], __file__.rsplit("/", 4)[0]]

import contextlib
import functools
import os
import selectors
import signal
import socket
import time
from collections.abc import Mapping, Sequence

from tfhvd.launch.agent import stop_detector
from tfhvd.launch.agent.launcher_client import Launcher, named_in
from tfhvd.launch.agent.rank_process import RankProcess, RankState
from tfhvd.launch.placement.environment import FOLDERS_OF_MPIRUN
from tfhvd.launch.stdio import debugger_stdin
from tfhvd.network import ports
from tfhvd.protocol import endpoints, messages, rank_channel
from tfhvd.protocol.messages import FrameKind
from tfhvd.protocol.variables import ADDRESS, MAJORITY, STANDBY, TOKEN, rank_of
from tfhvd.system import cpu_affinity, subreaper

CANNOT_REACH = 121  # exit code of an agent that cannot reach the launcher
_STOP_AFTER_LOSS = 2.0  # seconds from SIGTERM to SIGKILL when the launcher or mpirun has ended
_STOP_AFTER_SIGNAL = 30.0  # the same after a signal to the agent itself: a rank may have to save
_DRAIN = 0.5  # seconds to wait for output pipes that the rank's children may still hold open
_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


class Agent:
    """The connection between one rank's process and the launcher.

    Single-threaded: everything happens in ``run``, or in a signal handler.
    """

    def __init__(self, launcher: Launcher, port: endpoints.Port | None = None) -> None:
        self._launcher = launcher
        self._rank = RankProcess()
        self._port = port  # the rank's port for the other ranks, if ranks connect over TCP
        self._said: dict[str, bytes] = {}  # frames that a launcher which takes over needs, too
        self._unsent: list[bytes] = []  # frames that the last launcher did not accept
        self._line = ""  # the last roster that the rank has received
        self._select = selectors.DefaultSelector()
        self._notices = rank_channel.Receiver()
        self._parent = os.getppid()
        self._open_pipes = 0
        self._input: debugger_stdin.InputWriter | None = None
        self._stops = stop_detector.Halts()
        self._kill_at: float | None = None  # when to kill the rank that was asked to stop
        self._ended_by_mpirun = False
        self._over = False  # the job is over, or the launcher or mpirun has ended

    def run(self, command: Sequence[str], env: Mapping[str, str], *, has_input: bool) -> None:
        """Run the command to its end; return when the launcher says so, or has ended.

        If ranks connect over TCP, the rank starts when the launcher has sent their addresses.

        Args:
            command: the rank's command.
            env: its environment.
            has_input: whether the launcher forwards its stdin; else the rank's stdin is empty.
        """
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, stack: None)
        for number in _PASSED_ON:
            signal.signal(number, lambda number, stack: self._asked(number))
        self._select.register(self._launcher.sock, selectors.EVENT_READ, self._on_launcher)
        self._select.register(wake_read, selectors.EVENT_READ, lambda: os.read(wake_read, 4096))
        self._select.register(self._notices.sock, selectors.EVENT_READ, self._on_notices)
        self._start = functools.partial(self._start_rank, command, env, has_input)
        if self._port is None:
            self._start({})
        while not (self._rank.state is RankState.REPORTED and self._over):
            ready = [key for key, _ in self._select.select(timeout=self._timeout())]
            # The launcher is first: if it has ended, output waits for its successor.
            for key in sorted(ready, key=lambda key: key.fileobj is not self._launcher.sock):
                key.data()
            self._look_around()
        self._launcher.close()
        subreaper.sweep()

    def _start_rank(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        has_input: bool,
        inherited: Mapping[str, str],
    ) -> None:
        env = {**env, **inherited, rank_channel.NOTICE: self._notices.address}
        try:
            out, err, stdin = self._rank.start(command, env, has_input=has_input)
        except OSError as error:
            text = f"cannot start {command[0]!r}: {error.strerror or error}"
            self._tell("exit", messages.frame_json(FrameKind.EXIT, error=text))
            return
        if stdin is not None:
            self._input = debugger_stdin.InputWriter(self._select, stdin)
        for pipe, kind in ((out, FrameKind.OUTPUT), (err, FrameKind.ERRORS)):
            fd = pipe.fileno()
            self._open_pipes += 1
            handler = lambda fd=fd, kind=kind: self._on_output(fd, kind)  # noqa: E731
            self._select.register(fd, selectors.EVENT_READ, handler)

    def _timeout(self) -> float:
        if self._rank.state is RankState.EXITED:
            return 0.05
        if self._kill_at is not None:
            return max(0.0, min(stop_detector.EVERY, self._kill_at - time.monotonic()))
        return stop_detector.EVERY

    def _look_around(self) -> None:
        """Check for the end of the rank, its orphans, mpirun, and the launcher's host."""
        now = time.monotonic()
        rank = self._rank
        rank.reap()
        rank.count_kills(now)
        if rank.state is RankState.RUNNING and not rank.was_stopped:
            for frame in self._stops.look(rank.pid, {rank.pid, rank.record.process}, now):
                self._send(frame)
        delay = None if rank.has_exited else rank.record.delay(now)
        if delay is not None:
            self._send(messages.frame_json(FrameKind.SLOW_RANK, **delay.fields()))
        # mpirun follows its SIGTERM with SIGKILL a quarter of a second later.
        drain = 0.0 if self._ended_by_mpirun or self._over else _DRAIN
        is_read = not self._open_pipes or now > rank.ended_at + drain
        if rank.state is RankState.EXITED and is_read:
            self._on_notices()  # the launcher needs them before the end that they explain
            fields = rank.report(told=self._ended_by_mpirun)
            self._tell("exit", messages.frame_json(FrameKind.EXIT, **fields))
            subreaper.sweep(self._launcher.started)
        if self._kill_at is not None and now >= self._kill_at:
            self._kill_at = None
            rank.signal(signal.SIGKILL, group=True)
        if not self._over and self._launcher.has_lost_host(now):
            self._connect_again()
        self._launcher.beat(now)
        if os.getppid() != self._parent and not self._over:
            self._ended_by_mpirun = True
            self._end_alone()

    def _on_notices(self) -> None:
        for taken in self._notices.take():
            if taken.follows is not None:
                self._tell("leave", messages.frame_json(FrameKind.LEAVING, follows=taken.follows))
            elif taken.aside is not None:
                self._send(
                    messages.frame(FrameKind.HIDDEN_ERRORS, taken.aside.encode(errors="replace"))
                )
            elif taken.joining is not None:
                what = "".join(taken.joining)
                self._tell(what, messages.frame_json(FrameKind.JOINING, **taken.joining))
            elif taken.record is not None:
                self._rank.record.keep(taken.record)
            elif taken.takes_part is not None:
                self._rank.record.takes_part = taken.takes_part

    def _on_output(self, fd: int, kind: FrameKind) -> None:
        data = os.read(fd, 65536)
        if data:
            self._send(messages.frame(kind, data))
        else:
            self._select.unregister(fd)
            self._open_pipes -= 1

    def _on_launcher(self) -> None:
        frames = self._launcher.receive()
        for kind, payload in frames or []:
            if kind == FrameKind.SIGNAL:
                fields = messages.read_json(payload)
                self._rank.signal(fields["signal"], group=fields["group"])
            elif kind == FrameKind.STALL_QUERY:
                self._probe(messages.read_json(payload)["limit"])
            elif kind == FrameKind.SNAPSHOT_REQUEST:
                self._send(self._view())
            elif kind == FrameKind.KILL_IF_STOPPED:
                self._rank.kill_if_stopped(messages.read_json(payload)["limit"])
            elif kind == FrameKind.INPUT and self._input is not None:
                self._input.feed(payload)
            elif kind == FrameKind.ENDPOINTS and self._port is not None:
                if self._rank.state is RankState.WAITING:
                    self._start(self._port.hand_over(**messages.read_json(payload)))
            elif kind == FrameKind.ROSTER and self._port is not None:
                line = str(messages.read_json(payload)["line"])
                self._line = line if line.startswith("roster ") else self._line
                self._port.say(line)
            elif kind == FrameKind.TAKEOVER_STATE:
                self._send(self._launcher.take_state(payload))
            elif (
                kind in (FrameKind.REPLAY_LOG, FrameKind.BARRIERS_PASSED) and self._port is not None
            ):
                self._port.tell(payload)
            elif kind == FrameKind.QUIT:
                self._over = True
        if frames is None:
            self._connect_again()

    def _probe(self, limit: float) -> None:
        if not self._rank.has_exited and self._rank.record.waits_in_vain(limit):
            self._send(messages.frame_json(FrameKind.STALLED, limit=limit))

    def _view(self) -> bytes:
        """Return the agent's view of the rank. The rank's stacks may take a moment to arrive."""
        fields = {} if self._rank.has_exited else self._rank.record.view()
        return messages.frame_json(FrameKind.SNAPSHOT, **fields)

    def _connect_again(self) -> None:
        """Connect to the launcher that has taken over; without one, end the rank."""
        if self._over or not self._launcher.may_have_another:
            self._lost_launcher()
            return
        self._select.unregister(self._launcher.sock)
        started = self._rank.state is not RankState.WAITING
        try:
            self._launcher.connect({"started": started, "line": self._line})
        except OSError:
            self._end_alone()
            return
        self._select.register(self._launcher.sock, selectors.EVENT_READ, self._on_launcher)
        unsent, self._unsent = self._unsent, []
        for frame in (*unsent, *self._said.values()):
            self._send(frame)

    def _lost_launcher(self) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._select.unregister(self._launcher.sock)
        self._end_alone()

    def _end_alone(self) -> None:
        """End the rank, which is of no use without the launcher or mpirun."""
        self._over = True
        self._stop_soon()

    def _asked(self, number: int) -> None:
        """Pass to the rank a signal that mpirun, or a user's kill, has sent to the agent."""
        if number in (signal.SIGUSR1, signal.SIGUSR2):
            self._rank.signal(number, group=False)
        else:
            self._ended_by_mpirun = True
            self._stop_soon(number, _STOP_AFTER_SIGNAL)

    def _stop_soon(self, number: int = signal.SIGTERM, limit: float = _STOP_AFTER_LOSS) -> None:
        self._rank.signal(number, group=True)
        kill_at = time.monotonic() + limit
        self._kill_at = kill_at if self._kill_at is None else min(self._kill_at, kill_at)

    def _tell(self, what: str, frame: bytes) -> None:
        """Send a frame, and keep it for a launcher that takes over."""
        self._said[what] = frame
        self._send(frame)

    def _send(self, data: bytes) -> None:
        try:
            self._launcher.sock.sendall(data)
        except OSError:
            if self._launcher.may_have_another:  # the next read reports its end
                self._unsent.append(data)
            else:
                self._lost_launcher()


def main(argv: Sequence[str]) -> int:
    """Run ``agent.py command ...``; without the launcher's address, become the command."""
    command = list(argv)
    if ADDRESS not in os.environ:
        os.execvp(command[0], command)
    rank = rank_of(os.environ)
    share = (
        cpu_affinity.share(cpu_affinity.measure(os.environ))
        if cpu_affinity.SHARE in os.environ
        else None
    )
    try:
        port = endpoints.port_for(os.environ, rank)
        launcher = named_in(os.environ, rank, share, None if port is None else port.addresses)
        launcher.connect()
    except ports.PortsTakenError as error:
        print(f"tfhvdrun: rank {rank}: {error.strerror}", file=sys.stderr)
        return CANNOT_REACH
    except OSError as error:
        print(
            f"tfhvdrun: rank {rank} on host {socket.gethostname()} cannot reach the launcher "
            f"({error}). Open that port, name the network with --network-interfaces, or start "
            "the job with mpirun itself.",
            file=sys.stderr,
        )
        return CANNOT_REACH
    subreaper.adopt()
    Agent(launcher, port).run(
        command,
        _rank_environment(rank, share),
        has_input=debugger_stdin.has_input(rank, os.environ),
    )
    return 0


def _rank_environment(rank: int, share: int | None) -> dict[str, str]:
    """Return the agent's environment without the variables for the agent alone."""
    ours = {
        ADDRESS,
        TOKEN,
        STANDBY,
        MAJORITY,
        endpoints.TCP,
        cpu_affinity.SHARE,
        debugger_stdin.PDB,
    }
    ours |= {*FOLDERS_OF_MPIRUN}
    env = {name: value for name, value in os.environ.items() if name not in ours}
    env.update(cpu_affinity.variables(share, env))
    env.update(debugger_stdin.rank_variables(rank, os.environ))
    return env


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
