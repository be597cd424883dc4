"""A process that has TensorFlow loaded, and starts programs by forks for tests: see preloaded.py.

``python fork_server.py SOCKET`` is the server. `Popen` is the tests' side, and to them a
subprocess.Popen: also its program's parent ends with it, and says how.
"""

from __future__ import annotations

import functools
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import preloaded
from children import environment
from fork_client import NUMBER, receive

from tfhvd.system import subreaper

_LIMIT = 1 << 20  # bytes of a request


class Popen(subprocess.Popen):  # type: ignore[type-arg]
    """subprocess.Popen, but for the process's parent, and the arguments that `serve` ignores.

    Args:
        at: the server's socket.
    """

    def __init__(self, at: Path, args: Sequence[str], **kwargs: Any) -> None:
        self._server = socket.socket(socket.AF_UNIX)
        self._server.connect(str(at))
        super().__init__(args, **kwargs)

    def _execute_child(self, args: Sequence[str], *rest: Any) -> None:  # type: ignore[override]
        _, before, _, _, cwd, env, _, _, _, *pipes = rest[:15]
        stdin, _, _, stdout, _, stderr = pipes
        fields = {
            "args": list(args),
            "cwd": None if cwd is None else str(cwd),
            "env": None if env is None else dict(env),
            "heeds_signals": before is not None,
        }
        request = json.dumps(fields).encode()
        socket.send_fds(self._server, [request], [stdin, stdout, stderr])
        self._server.shutdown(socket.SHUT_WR)
        self.pid = receive(self._server)
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        timeout = 0 if wait_flags & os.WNOHANG else None
        if not select.select([self._server], [], [], timeout)[0]:
            return 0, 0
        return self.pid, receive(self._server)

    def _internal_poll(self, *_args: Any, **_kwargs: Any) -> int | None:
        if self.returncode is None:
            pid, status = self._try_wait(os.WNOHANG)
            if pid:
                self._handle_exitstatus(status)  # type: ignore[attr-defined]
                self._server.close()
        return self.returncode


class Server:
    """A server that is started when the first program is."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="tfhvd-forks-"))
        self._process: subprocess.Popen[bytes] | None = None

    def socket(self) -> Path | None:
        """The server's socket; None if no process can fork here, so that programs start by exec."""
        at = self._folder / "socket"
        if not preloaded.POSSIBLE:
            return None
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(at)],
                env=environment(TF_CPP_MIN_LOG_LEVEL="3"),
                stdin=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            while not at.exists() and self._process.poll() is None:
                time.sleep(0.05)
            if self._process.poll() is not None:
                warnings.warn("TensorFlow starts threads here: jobs start anew", stacklevel=2)
        return at if self._process.poll() is None else None

    def popen(self) -> Callable[..., subprocess.Popen]:  # type: ignore[type-arg]
        """What starts programs there: it takes the arguments of subprocess.Popen."""
        at = self.socket()
        return subprocess.Popen if at is None else functools.partial(Popen, at)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._folder)


def serve(at: Path) -> None:
    """Starts what it is asked for until its parent ends, by a process of its own for each."""
    parent = os.getppid()
    with preloaded.start_python_by_fork(), socket.socket(socket.AF_UNIX) as listener:
        made = at.with_suffix(".new")
        listener.bind(str(made))
        listener.listen()
        made.rename(at)
        listener.settimeout(1.0)
        while os.getppid() == parent:
            preloaded.left_behind()  # reaps
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                continue
            with connection:
                if os.fork() == 0:
                    listener.close()
                    _run(connection)


def _run(connection: socket.socket) -> None:
    code = 1
    try:
        connection.setblocking(True)
        subreaper.adopt()
        request, files, _, _ = socket.recv_fds(connection, _LIMIT, 3)
        while more := connection.recv(_LIMIT):
            request += more
        fields = json.loads(request)
        process = subprocess.Popen(
            fields["args"],
            cwd=fields["cwd"],
            env=fields["env"],
            stdin=files[0],
            stdout=files[1],
            stderr=files[2],
            start_new_session=True,
            preexec_fn=heed_signals if fields["heeds_signals"] else None,
        )
        for file in files:
            os.close(file)
        connection.sendall(process.pid.to_bytes(NUMBER, "big"))
        if fields.get("ends_with_client", False):
            _kill_if_closed(connection, process.pid)
        _, status = os.waitpid(process.pid, 0)
        connection.sendall(status.to_bytes(NUMBER, "big"))
        code = 0
    finally:
        os._exit(code)


def _kill_if_closed(connection: socket.socket, pid: int) -> None:
    """Waits for the end of a process, and kills it if the client ends before."""
    process = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(process, select.POLLIN)
    poll.register(connection, 0)  # for POLLHUP
    if process not in [fd for fd, _ in poll.poll()]:
        os.kill(pid, signal.SIGKILL)
    os.close(process)


def heed_signals() -> None:
    """As in a terminal: the tests may be a shell's background job, or run by nohup."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
