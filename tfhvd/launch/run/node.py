"""A machine that a cluster's scheduler gives to a job, such as Ray's, Dask's or Spark's.

Such a cluster runs our functions, and need not have ssh. So one of our functions on each machine
keeps a `NodeServer`, which runs commands for who knows its token, as sshd does for who has a key;
the launcher reaches it by `remote_shell`. A command is run only if it is signed: see channel.
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

_ABOUT = "node"  # what listens, as handshake calls it
_LONGEST = 1 << 17  # bytes of a command: Linux takes no longer word

# What a message of a server is about, by its first byte.
_OUT, _ERR, _ENDED = b"o", b"e", b"x"


@dataclass(frozen=True)
class Node:
    """A machine with a server.

    Attributes:
        host: its address, by which the others reach it.
        port: of its server.
        slots: how many ranks it takes.
    """

    host: str
    port: int
    slots: int = 1

    def to_json(self) -> str:
        """As `from_json` reads it."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Node:
        """As `to_json` wrote it."""
        return Node(**json.loads(text))


class NodeServer:
    """Runs commands for the launcher, each in a shell of its own, until closed.

    What a command starts ends with its connection; but a daemon that has left it, such as mpirun's,
    ends by itself with mpirun.

    Args:
        token: what a caller has to know; see tokens.

    Attributes:
        port: where it listens, on every network.
    """

    def __init__(self, token: str) -> None:
        self._lock = threading.Lock()
        self._running: set[_Command] = set()
        self._closed = False
        self._door = Door(address.listen(remote=True, of=ports.of(variables.own())), token, _ABOUT)
        self.port = self._door.port
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        """Takes no further command, and ends those that run."""
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
    """A command, and the connection that its output leaves by."""

    def __init__(self, channel: Channel, text: str) -> None:
        self._channel = channel
        self._sending = threading.Lock()
        self._over = threading.Event()  # its shell has ended, and nothing of its output is left
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
        """Kills what still runs."""
        if not self._over.is_set():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _pump(self, kind: bytes, stream: IO[bytes]) -> None:
        while data := os.read(stream.fileno(), 1 << 16):
            self._send(kind, data)

    def _send(self, kind: bytes, data: bytes) -> None:
        with self._sending, contextlib.suppress(OSError):  # whoever asked may be gone
            self._channel.send(kind + data)

    def _end_with_caller(self) -> None:
        with contextlib.suppress(OSError):
            self._channel.sock.recv(1)  # who asks says nothing more: this is its end
        self.end()


def execute(node: Node, token: str, command: str) -> int:
    """Runs a command of a shell on a node, with its output here; returns its exit code.

    Raises:
        OSError: if the node's server cannot be reached, or is lost meanwhile.
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
                return code if code >= 0 else 128 - code  # as a shell says it of a signal
            streams[kind].write(data)
            streams[kind].flush()
