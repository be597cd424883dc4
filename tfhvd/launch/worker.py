"""The small process around each rank: it runs the command, and is its ear and voice.

mpirun starts one per rank. It starts the command as its only child, sends what the rank writes and
how it ends to the launcher, passes signals on, and stays until the launcher says that the job is
over; so it is the launcher, not mpirun, that decides when a failed job ends. It leaves no process
behind: not when it is told to stop, nor when launcher or mpirun are gone (then it ends its rank),
nor when it is killed itself (then the kernel kills the rank).

It is run by path with ``python -E -S``, with the standard library alone.
"""

from __future__ import annotations

import sys

if __name__ == "__main__" and not __package__:
    # Run by path: this folder's own names must not hide the standard library's.
    sys.path[:] = [*sys.path[1:], __file__.rsplit("/", 3)[0]]

import contextlib
import functools
import os
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence

from tfhvd.launch import (
    address,
    children,
    cores,
    debugging,
    endpoints,
    halts,
    notice,
    orphans,
    wire,
)
from tfhvd.launch.environment import ADDRESS, FOLDERS_OF_MPIRUN, MAJORITY, STANDBY, TOKEN
from tfhvd.launch.rank import rank_of
from tfhvd.launch.reach import Launcher, named_in
from tfhvd.watch import control_groups, flight, snapshot

CANNOT_REACH = 121  # exit code of a worker that cannot reach the launcher
_STOP_AFTER_LOSS = 2.0  # seconds from SIGTERM to SIGKILL once launcher or mpirun are gone
_DRAIN = 0.5  # seconds to wait for output that the rank's own children may still hold open
_COUNT_KILLS = 5.0  # seconds from one look to the next
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL)
_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


class Worker:
    """One rank's life. Single-threaded: everything happens in ``run``, or in a signal handler."""

    def __init__(self, launcher: Launcher, port: endpoints.Port | None = None) -> None:
        self._launcher = launcher
        self._port = port  # where the rank listens for others, if it meets them over TCP
        self._said: dict[str, bytes] = {}  # what another launcher is to know, too: each of it once
        self._unsent: list[bytes] = []  # what a launcher did not take any more
        self._line = ""  # the roster that the rank was told last
        self._select = selectors.DefaultSelector()
        self._notices = notice.Receiver()
        self._parent = os.getppid()
        self._rank: subprocess.Popen[bytes] | None = None
        self._status: int | None = None  # as Popen.returncode: negative for a signal
        self._ended_at = 0.0
        self._open_pipes = 0
        self._input: debugging.InputWriter | None = None
        self._kill_at: float | None = None  # when to kill the rank that was asked to stop
        self._ended_by_mpirun = False
        self._was_stopped = False  # SIGSTOP had stopped the rank when it was killed
        self._stopped_since: float | None = None  # as far as the launcher has let us look
        self._halts = halts.Halts()
        self._record: int | None = None  # the rank's flight record: its memory, also after its end
        self._trains = 0  # the process that the record is of; 0: none
        # For memory: some seconds ago, and since. Who is killed may take a second to end.
        self._kills = (control_groups.memory_kills(),) * 2
        self._count_kills_at = time.monotonic() + _COUNT_KILLS
        self._told = False  # the EXIT frame is sent (or nobody is there to take it)
        self._over = False  # the job is over, or launcher or mpirun are gone

    def run(self, command: Sequence[str], env: Mapping[str, str], *, has_input: bool) -> None:
        """Runs the command to its end, and returns when the launcher says so or is gone.

        Args:
            command: the rank's.
            env: its environment.
            has_input: whether the launcher sends what it reads from stdin; else there is nothing.

        A rank that meets the others over TCP is started once the launcher says where they are.
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
        while not (self._told and self._over):
            for key, _ in self._select.select(timeout=self._timeout()):
                key.data()
            self._look_around()
        self._launcher.close()
        orphans.sweep()

    def _start_rank(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        has_input: bool,
        inherited: Mapping[str, str],
    ) -> None:
        try:
            stdin = subprocess.PIPE if has_input else subprocess.DEVNULL
            env = {**env, **inherited, notice.NOTICE: self._notices.address}
            self._rank = children.start_rank(command, env, stdin)
        except OSError as error:
            text = f"cannot start {command[0]!r}: {error.strerror or error}"
            self._status, self._told = 127, True
            self._tell("exit", wire.frame_json(wire.EXIT, error=text))
        else:
            if self._rank.stdin is not None:
                self._input = debugging.InputWriter(self._select, self._rank.stdin)
            for pipe, kind in ((self._rank.stdout, wire.OUTPUT), (self._rank.stderr, wire.ERRORS)):
                assert pipe is not None
                fd = pipe.fileno()
                self._open_pipes += 1
                handler = lambda fd=fd, kind=kind: self._on_output(fd, kind)  # noqa: E731
                self._select.register(fd, selectors.EVENT_READ, handler)

    def _timeout(self) -> float:
        if self._status is not None and not self._told:
            return 0.05
        if self._kill_at is not None:
            return max(0.0, min(halts.EVERY, self._kill_at - time.monotonic()))
        return halts.EVERY

    def _look_around(self) -> None:
        """Sees who has ended: the rank, its orphans, mpirun."""
        now = time.monotonic()
        self._reap()
        if self._status is None and now >= self._count_kills_at:
            self._count_kills_at = now + _COUNT_KILLS
            self._kills = (self._kills[1], control_groups.memory_kills())
        if self._status is None and self._rank is not None and not self._was_stopped:
            for frame in self._halts.look(self._rank.pid, {self._rank.pid, self._trains}, now):
                self._send(frame)
        ended = self._status is not None
        # mpirun follows its SIGTERM with SIGKILL a quarter of a second later.
        drain = 0.0 if self._ended_by_mpirun or self._over else _DRAIN
        if ended and not self._told and (not self._open_pipes or now > self._ended_at + drain):
            self._tell_exit()
            orphans.sweep(self._launcher.heir)
        if self._kill_at is not None and now >= self._kill_at:
            self._kill_at = None
            self._signal(signal.SIGKILL, group=True)
        if not self._over and self._launcher.has_lost_host(now):
            self._come_again()
        self._launcher.beat(now)
        if os.getppid() != self._parent and not self._over:
            self._ended_by_mpirun = True
            self._end_alone()

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                if self._rank is not None and pid == self._rank.pid:
                    self._status = os.waitstatus_to_exitcode(status)
                    self._rank.returncode = self._status
                    self._ended_at = time.monotonic()

    def _tell_exit(self) -> None:
        assert self._status is not None
        self._told = True
        self._on_notices()  # the launcher needs them before the end that they explain
        fields: dict[str, object] = {
            "ago": time.monotonic() - self._ended_at,
            "doing": self._doing(),
        }
        if self._status < 0:
            fields |= {"signal": -self._status, "told": self._ended_by_mpirun}
            fields["stopped"] = self._was_stopped
            killed = self._status == -signal.SIGKILL
            fields["out_of_memory"] = killed and control_groups.memory_kills() > self._kills[0]
        else:
            fields["code"] = self._status
        self._tell("exit", wire.frame_json(wire.EXIT, **fields))

    def _doing(self) -> str:
        """What the rank was doing when it ended; "" where it has left no record."""
        if self._record is None:
            return ""
        try:
            return flight.read(self._record, self._ended_at).doing()
        except (OSError, flight.RecordError) as error:
            return f"What it was doing is not known: {error}."

    def _on_notices(self) -> None:
        for taken in self._notices.take():
            if taken.follows is not None:
                self._tell("leave", wire.frame_json(wire.NOTICE, follows=taken.follows))
            elif taken.joining is not None:
                what = "".join(taken.joining)
                self._tell(what, wire.frame_json(wire.JOINING, **taken.joining))
            elif taken.record is not None:
                if self._record is not None:  # of the job before
                    os.close(self._record)
                self._record = taken.record
                self._trains = flight.process_of(taken.record)

    def _on_output(self, fd: int, kind: bytes) -> None:
        data = os.read(fd, 65536)
        if data:
            self._send(wire.frame(kind, data))
        else:
            self._select.unregister(fd)
            self._open_pipes -= 1

    def _on_launcher(self) -> None:
        frames = self._launcher.receive()
        for kind, payload in frames or []:
            if kind == wire.SIGNAL:
                fields = wire.read_json(payload)
                self._signal(fields["signal"], group=fields["group"])
            elif kind == wire.PROBE:
                self._probe(wire.read_json(payload)["limit"])
            elif kind == wire.REPORT:
                self._send(self._view())
            elif kind == wire.LOOK:
                self._end_if_stopped(wire.read_json(payload)["limit"])
            elif kind == wire.INPUT and self._input is not None:
                self._input.feed(payload)
            elif kind == wire.ENDPOINTS and self._port is not None and self._rank is None:
                if self._status is None:
                    self._start(self._port.hand_over(**wire.read_json(payload)))
            elif kind == wire.MEMBERS and self._port is not None:
                line = str(wire.read_json(payload)["line"])
                self._line = line if line.startswith("roster ") else self._line
                self._port.say(line)
            elif kind == wire.WILL:
                self._send(self._launcher.take_will(payload))
            elif kind in (wire.BEGUN, wire.PASSED) and self._port is not None:
                self._port.tell(payload)
            elif kind == wire.QUIT:
                self._over = True
        if frames is None:
            self._come_again()

    def _probe(self, limit: float) -> None:
        if self._record is None or self._status is not None:
            return
        if flight.waits_in_vain(self._record, limit):
            self._send(wire.frame_json(wire.STUCK, limit=limit))

    def _view(self) -> bytes:
        """What is seen of the rank. Its stacks may take a moment to come."""
        if self._record is None or self._status is not None:
            return wire.frame_json(wire.VIEW)
        try:
            record = flight.read(self._record)
        except (OSError, flight.RecordError):
            return wire.frame_json(wire.VIEW)
        return wire.frame_json(wire.VIEW, **snapshot.as_fields(snapshot.take(record.pid, record)))

    def _end_if_stopped(self, limit: float) -> None:
        """Others wait for this rank, and it cannot come to them: not for longer than the limit."""
        if self._rank is None or self._status is not None:
            return
        now = time.monotonic()
        # Without a record it is not known which of its processes trains.
        pids = {self._rank.pid, self._trains} if self._trains else None
        if not orphans.stopped(self._rank.pid, pids):
            self._stopped_since = None
        elif self._stopped_since is None:
            self._stopped_since = now
        elif now >= self._stopped_since + limit:
            self._signal(signal.SIGKILL, group=True)

    def _come_again(self) -> None:
        """The launcher's process has ended; goes to the one that takes its place, if one does."""
        if self._over or not self._launcher.may_have_another:
            self._lost_launcher()
            return
        self._select.unregister(self._launcher.sock)
        started = self._rank is not None or self._status is not None
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
        """Launcher or mpirun are gone: nobody needs this rank any more."""
        self._over = True
        self._stop_soon()

    def _asked(self, number: int) -> None:
        """A signal for us (from mpirun, or a user's kill) is meant for the rank."""
        if number in (signal.SIGUSR1, signal.SIGUSR2):
            self._signal(number, group=False)
        else:
            self._ended_by_mpirun = True
            self._stop_soon(number)

    def _stop_soon(self, number: int = signal.SIGTERM) -> None:
        self._signal(number, group=True)
        if self._kill_at is None:
            self._kill_at = time.monotonic() + _STOP_AFTER_LOSS

    def _signal(self, number: int, *, group: bool) -> None:
        if self._status is not None:
            return
        if self._rank is None:  # it is told to end before it has begun
            if number in _ENDING:
                self._status, self._ended_at = -number, time.monotonic()
            return
        if number == signal.SIGKILL:
            self._was_stopped = self._was_stopped or bool(orphans.stopped(self._rank.pid))
        with contextlib.suppress(ProcessLookupError, PermissionError):
            (os.killpg if group else os.kill)(self._rank.pid, number)

    def _tell(self, what: str, frame: bytes) -> None:
        """Sends what another launcher would have to know, too."""
        self._said[what] = frame
        self._send(frame)

    def _send(self, data: bytes) -> None:
        try:
            self._launcher.sock.sendall(data)
        except OSError:
            if self._launcher.may_have_another:  # whose end is about to be read
                self._unsent.append(data)
            else:
                self._lost_launcher()


def main(argv: Sequence[str]) -> int:
    """``worker.py command ...``: without the launcher's address, it becomes the command."""
    command = list(argv)
    if ADDRESS not in os.environ:
        os.execvp(command[0], command)
    rank = rank_of(os.environ)
    nics = os.environ.get(endpoints.TCP)
    towards = [host for host, _ in address.pairs(os.environ[ADDRESS])]
    port = None if nics is None else endpoints.Port(rank, nics, os.environ.get(TOKEN, ""), towards)
    listens_at = None if port is None else port.addresses
    share = cores.share(cores.measure(os.environ)) if cores.SHARE in os.environ else None
    launcher = named_in(os.environ, rank, share, listens_at)
    try:
        launcher.connect()
    except OSError as error:
        print(
            f"tfhvdrun: rank {rank} on host {socket.gethostname()} cannot reach the launcher "
            f"({error}). Open that port, name the network with --network-interfaces, or start "
            "the job with mpirun itself.",
            file=sys.stderr,
        )
        return CANNOT_REACH
    orphans.adopt()
    Worker(launcher, port).run(
        command,
        _rank_environment(rank, share),
        has_input=debugging.has_input(rank, os.environ),
    )
    return 0


def _rank_environment(rank: int, share: int | None) -> dict[str, str]:
    """Ours, without what is the worker's alone."""
    ours = {ADDRESS, TOKEN, STANDBY, MAJORITY, endpoints.TCP, cores.SHARE, debugging.PDB}
    ours |= {*FOLDERS_OF_MPIRUN}
    env = {name: value for name, value in os.environ.items() if name not in ours}
    env.update(cores.variables(share, env))
    env.update(debugging.rank_variables(rank, os.environ))
    return env


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
