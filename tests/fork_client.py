"""Stands for a program that a server of forks runs: see fork_server.py.

``python -E -S fork_client.py SOCKET ARGS`` is ``python ARGS`` to its parent, such as mpirun:
it passes on signals, and ends as the program ends. If it is killed, the server kills the program.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

NUMBER = 8  # bytes of a process's number, and of how it has ended
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def main(at: str, args: Sequence[str]) -> int:
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(at)
        fields = {
            "args": [sys.executable, *args],
            "cwd": str(Path.cwd()),
            "env": dict(os.environ),
            "heeds_signals": False,
            "ends_with_client": True,
        }
        socket.send_fds(server, [json.dumps(fields).encode()], [0, 1, 2])
        server.shutdown(socket.SHUT_WR)
        pid = receive(server)
        for number in _PASSED_ON:
            signal.signal(number, lambda number, _: os.kill(pid, number))
        status = receive(server)
    if os.WIFSIGNALED(status):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for number in _PASSED_ON:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    return os.waitstatus_to_exitcode(status)


def receive(server: socket.socket) -> int:
    data = b""
    while len(data) < NUMBER:
        more = server.recv(NUMBER - len(data))
        if not more:
            raise ConnectionError("the server of forks has ended")
        data += more
    return int.from_bytes(data, "big")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
