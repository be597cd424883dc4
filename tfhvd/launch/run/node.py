"""Node: a machine that a cluster's scheduler gives to a job, such as Ray's, Dask's or Spark's.

Such a cluster runs functions, and may have no ssh. So on each machine one of our functions runs a
`NodeServer`. The server runs commands for callers that know its token, as sshd does for users that
have a key. The launcher reaches the server by `remote_shell`. The server runs a command only if it
is signed: see channel.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import IO

from tfhvd.network import address, connector, handshake, ports
from tfhvd.network.acceptor import Guest
from tfhvd.network.listener import Door
from tfhvd.network.signed_channel import Channel
from tfhvd.protocol import variables

_ABOUT = "node"  # the listener's name in the handshake
_LONGEST = 1 << 17  # bytes of a command: Linux accepts no longer argument

# The kind of a server's message, in its first byte.
_OUT, _ERR, _ENDED = b"o", b"e", b"x"


@dataclass(frozen=True)
class Node:
    """A machine with a server.

    Attributes:
        host: the address at which other machines reach it.
        port: the port of its server.
        slots: how many ranks it runs.
    """

    host: str
    port: int
    slots: int = 1

    def to_json(self) -> str:
        """Returns the node as text for `from_json`."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Node:
        """Reads the text from `to_json`."""
        return Node(**json.loads(text))


class NodeServer:
    """A server that runs commands for the launcher, each in a separate shell, until closed.

    The processes of a command end with its connection. A daemon that has left the command's
    session, such as mpirun's, ends together with mpirun.

    Args:
        token: the token that a caller must know; see tokens.

    Attributes:
        port: the port at which the server listens, on every network.
    """

    def __init__(self, token: str) -> None:
        self._lock = threading.Lock()
        self._running: set[_Command] = set()
        self._closed = False
        self._door = Door(address.listen(remote=True, of=ports.of(variables.own())), token, _ABOUT)
        self.port = self._door.port
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        """Accepts no more commands, and ends those that run."""
        self._door.stop()
        with self._lock:
            self._closed = True
            running = list(self._running)
        for command in running:
            command.end()

    def _serve(self) -> None:
        for guest in self._door.guests():
            threading.Thread(target=self._attend, args=(guest,), daemon=True).start()

    def _attend(self, guest: Guest) -> None:
        with guest.sock, contextlib.suppress(OSError):
            channel = Channel(guest.sock, guest.key, listens=True)
            address.detect_loss(guest.sock)
            guest.sock.settimeout(handshake.LIMIT)
            text = channel.receive(_LONGEST).decode()
            guest.sock.settimeout(None)
            with self._lock:
                if self._closed:
                    return
                command = _Command(channel, text)
                self._running.add(command)
            try:
                command.run()
            finally:
                with self._lock:
                    self._running.discard(command)


class _Command:
    """A command, and the connection that carries its output."""

    def __init__(self, channel: Channel, text: str) -> None:
        self._channel = channel
        self._sending = threading.Lock()
        self._over = threading.Event()  # set when its shell has ended and all output is sent
        self._process = subprocess.Popen(
            ["sh", "-c", text],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def run(self) -> None:
        process = self._process
        threading.Thread(target=self._end_with_caller, daemon=True).start()
        pumps = [
            threading.Thread(target=self._pump, args=(kind, stream), daemon=True)
            for kind, stream in ((_OUT, process.stdout), (_ERR, process.stderr))
        ]
        for pump in pumps:
            pump.start()
        code = process.wait()
        for pump in pumps:
            pump.join()
        self._over.set()
        self._send(_ENDED, str(code).encode())

    def end(self) -> None:
        """Kills the processes that still run."""
        if not self._over.is_set():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _pump(self, kind: bytes, stream: IO[bytes]) -> None:
        while data := os.read(stream.fileno(), 1 << 16):
            self._send(kind, data)

    def _send(self, kind: bytes, data: bytes) -> None:
        with self._sending, contextlib.suppress(OSError):  # the caller may have ended
            self._channel.send(kind + data)

    def _end_with_caller(self) -> None:
        with contextlib.suppress(OSError):
            self._channel.sock.recv(1)  # a caller sends nothing more, so this returns at its end
        self.end()


def execute(node: Node, token: str, command: str) -> int:
    """Runs a shell command on a node, prints its output here, and returns its exit code.

    Raises:
        OSError: if the node's server cannot be reached, or fails meanwhile.
    """
    guest = connector.connect((node.host, node.port), token, _ABOUT, to_connect=10)
    with guest.sock as sock:
        address.detect_loss(sock)
        channel = Channel(sock, guest.key, listens=False)
        channel.send(command.encode())
        streams: Mapping[bytes, IO[bytes]] = {_OUT: sys.stdout.buffer, _ERR: sys.stderr.buffer}
        while True:
            message = channel.receive()
            kind, data = message[:1], message[1:]
            if kind == _ENDED:
                code = int(data)
                return code if code >= 0 else 128 - code  # a signal's exit code as in a shell
            streams[kind].write(data)
            streams[kind].flush()
