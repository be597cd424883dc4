"""Starts one probe as each rank of a job, by the launcher itself, and asks them.

with Probes(job, words) as probes:
    probes.wait(12.0)
    probes.ask_all("facts", 5.0)
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import ctypes
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from tfhvd.launch.placement import command_line, environment
from tfhvd.launch.state.job_spec import Job
from tfhvd.launch.state.rank_state import last_lines_of
from tfhvd.network import address, ports, tokens
from tfhvd.network.listener import Door
from tfhvd.protocol import variables
from tfhvd.tools.doctor.probe import ABOUT, ADDRESS, TOKEN

_PACKAGE = Path(__file__).resolve().parents[3]  # the folder that `import tfhvd` is found in
_HELLO = 5.0  # seconds in which a probe must have said who it is
_AT_ONCE = 64  # probes that are asked at the same time
_TO_END = 6.0  # seconds for the launcher, and for its ranks within it
_ENGINE = re.compile(r"\[tfhvd rank \d+ on [^\]]*\] warning: (.*)")
_OWN = "tfhvdrun: "
_PR_SET_PDEATHSIG = 1


class ProbeError(Exception):
    """A probe has ended, or has not started; the text says which, and why.

    Attributes:
        said: the last lines of the launcher and of mpirun.
    """

    def __init__(self, message: str, said: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.said = tuple(said)


class ProbeTimeoutError(ProbeError):
    """A probe has not answered in time."""


class Probe:
    """One rank's probe, as the doctor sees it.

    Attributes:
        rank: its number.
        host: the name of its machine.
        version: of tfhvd there.
        port: its port for measurements.
    """

    def __init__(self, sock: socket.socket, hello: Mapping[str, Any]) -> None:
        self.rank = int(hello["rank"])
        self.host = str(hello["host"])
        self.version = str(hello["version"])
        self.port = int(hello["port"])
        self._sock = sock
        self._unread = b""
        self._asked = 0  # questions; a late answer has the number of an earlier one

    def ask(self, what: str, limit: float, **more: object) -> dict[str, Any]:
        """Asks, and waits for the answer.

        Raises:
            ProbeTimeoutError: there was none within `limit` seconds.
            ProbeError: the probe has ended.
        """
        self._asked += 1
        question = {"ask": what, "number": self._asked, **more}
        until = time.monotonic() + limit
        try:
            self._sock.settimeout(limit)
            self._sock.sendall(json.dumps(question).encode() + b"\n")
            answer: dict[str, Any] = {}
            while answer.get("number") != self._asked:
                answer = json.loads(self._read_line(until))
            return dict(answer["answer"])
        except socket.timeout as error:
            text = f"rank {self.rank} (host {self.host}) has not answered within {limit:.0f} s"
            raise ProbeTimeoutError(text) from error
        except (OSError, ValueError, KeyError) as error:
            raise ProbeError(f"rank {self.rank} (host {self.host}): {error}") from error

    def _read_line(self, until: float) -> bytes:
        while b"\n" not in self._unread:
            self._sock.settimeout(max(0.001, until - time.monotonic()))
            more = self._sock.recv(1 << 16)
            if not more:
                raise OSError("the probe has ended")
            self._unread += more
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def close(self) -> None:
        """Lets the probe end."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()


class Probes:
    """The probes of a job: a context, which starts the launcher and ends it.

    Args:
        job: what the launcher's options say.
        words: these options.

    Attributes:
        by_rank: the probes that have started.
    """

    def __init__(self, job: Job, words: Sequence[str]) -> None:
        self.by_rank: dict[int, Probe] = {}
        self._job = job
        self._environ = {**variables.own(), **job.variables}
        self._token = tokens.new(self._environ)
        own = ["--no-ssh-check", "--no-prefix", "--grace=2", "--stop-timeout=2"]
        probe = [sys.executable, "-m", "tfhvd.tools.doctor.probe"]
        self._line = [
            *(sys.executable, "-m", "tfhvd.launch.run.launcher_main", *own, *words, *probe),
        ]
        cores = environment.physical_cores()
        node = command_line.Node(cores, environment.in_allocation(variables.own()))
        self._remote = command_line.is_remote(job, node)
        self._launcher: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Probes:
        self._door = Door(self._listener(), self._token, ABOUT)
        self._said = tempfile.TemporaryFile()
        env = variables.own()
        env[ADDRESS] = address.addresses(
            self._door.port,
            remote=self._remote,
            hosts=[host.name for host in self._job.hosts],
            nics=self._job.nics,
        )
        env[TOKEN] = self._token
        paths = [str(_PACKAGE), *filter(None, [env.get("PYTHONPATH")])]
        env["PYTHONPATH"] = os.pathsep.join(paths)
        self._launcher = subprocess.Popen(
            self._line,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=self._said,
            stderr=self._said,
            start_new_session=True,  # Ctrl-C is ours to pass on, once.
            preexec_fn=_end_with_us(),
        )
        return self

    def _listener(self) -> socket.socket:
        return address.listen(remote=self._remote, of=ports.of(self._environ))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._launcher is not None
        try:
            if kind is not None:
                self.end()
            if self.finish():
                return
            self.end()
            if not self.finish():
                self._launcher.kill()
                self._launcher.wait()
        finally:
            self._door.close()
            self._said.close()

    def wait(self, limit: float) -> None:
        """Waits until all probes have started.

        Raises:
            ProbeError: they have not within `limit` seconds, or the launcher has ended.
        """
        assert self._launcher is not None
        until = time.monotonic() + limit
        while len(self.by_rank) < self._job.num_proc:
            for guest in self._door.take(0.1):
                self._welcome(guest.sock)
            if self._launcher.poll() is not None:
                raise ProbeError(self._why() or "the launcher has ended", self._last_lines())
            if time.monotonic() > until:
                missing = sorted(set(range(self._job.num_proc)) - set(self.by_rank))
                some = ", ".join(map(str, missing[:8])) + (", ..." if len(missing) > 8 else "")
                raise ProbeError(
                    f"{len(missing)} of {self._job.num_proc} ranks have not started within "
                    f"{limit:.0f} s (rank {some})",
                    self._last_lines(),
                )

    def _welcome(self, sock: socket.socket) -> None:
        try:
            sock.settimeout(_HELLO)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            address.detect_loss(sock)
            probe = Probe(sock, json.loads(_line(sock)))
        except Exception:  # a message that cannot be read harms its sender alone
            sock.close()
            return
        self.by_rank[probe.rank] = probe

    def ask_all(
        self, what: str, limit: float, ranks: Iterable[int] | None = None
    ) -> tuple[dict[int, dict[str, Any]], dict[int, ProbeError]]:
        """Asks several probes at once.

        Args:
            what: the question.
            limit: seconds for each answer.
            ranks: whom; None for all.

        Returns:
            The answers by rank; and the errors of those that did not answer.
        """
        answers: dict[int, dict[str, Any]] = {}
        errors: dict[int, ProbeError] = {}
        chosen = [self.by_rank[rank] for rank in (self.by_rank if ranks is None else ranks)]
        with concurrent.futures.ThreadPoolExecutor(min(_AT_ONCE, len(chosen))) as pool:
            asked = {pool.submit(probe.ask, what, limit): probe for probe in chosen}
            for future, probe in asked.items():
                try:
                    answers[probe.rank] = future.result()
                except ProbeError as error:
                    errors[probe.rank] = error
        return dict(sorted(answers.items())), errors

    def end(self) -> None:
        """Ends the job although its ranks have not come to their end."""
        assert self._launcher is not None
        self._launcher.send_signal(signal.SIGTERM)

    def finish(self) -> bool:
        """Asks nothing more, and waits for the end of the job; returns whether it has ended."""
        assert self._launcher is not None
        for probe in self.by_rank.values():
            probe.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._launcher.wait(_TO_END)
        return self._launcher.poll() is not None

    def why_ended(self) -> str:
        """Returns what the launcher says of a job that has ended by itself."""
        self.finish()
        return self._why() or "the job has ended"

    def warnings(self) -> list[str]:
        """Returns what the engine has warned of, each text once; complete after `finish`."""
        return list(dict.fromkeys(_ENGINE.findall(self._text())))

    def _why(self) -> str:
        """The launcher's word on a failure, or the end of all that was said."""
        lines = self._last_lines()
        own = [line for line in lines if line.startswith((f"{_OWN}error", f"{_OWN}rank"))]
        text = (own or lines or [""])[-1].removeprefix(_OWN).removeprefix("error: ").strip()
        return text.replace("its own messages are above", "its own messages are below")

    def _last_lines(self) -> list[str]:
        return last_lines_of(line for line in self._text().splitlines() if line.strip(" -"))

    def _text(self) -> str:
        self._said.seek(0)
        return self._said.read().decode(errors="replace")


def _end_with_us() -> Callable[[], None]:
    """What has a child end when this process does, however it does."""
    libc = ctypes.CDLL(None)
    return lambda: libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)


def _line(sock: socket.socket) -> bytes:
    """Reads a line byte by byte: whatever follows is not ours to take."""
    line = b""
    while not line.endswith(b"\n"):
        byte = sock.recv(1)
        if not byte or len(line) > 1 << 16:
            raise OSError("no line")
        line += byte
    return line
