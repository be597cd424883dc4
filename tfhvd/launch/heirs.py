"""Who takes the launcher's place where its host is lost: a worker's side.

Of those that the launcher has named, in their order, the first one that is there. It is a process
that its worker starts, and to which all come; see heir.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import IO

from tfhvd.launch import address, endpoints, environment, wire


class Heirs:
    """What a worker knows of them. It may have to start one itself.

    Args:
        rank: the worker's.
        nics: the network interfaces by which others reach it; see endpoints.TCP.
        towards: hosts that they may be on.

    Attributes:
        addresses: where one would listen that this worker starts; "" once it has.
    """

    def __init__(self, rank: int, nics: str, towards: Iterable[str]) -> None:
        self._rank = rank
        self._listener, addresses = endpoints.reserve_port(nics, towards)
        self.addresses = address.for_others(addresses)
        self._order: list[tuple[int, str]] = []
        self._will = b""
        self._heir: subprocess.Popen[bytes] | None = None

    def take(self, payload: bytes) -> bytes:
        """Takes what the launcher has told; returns the answer to it."""
        version, self._order, self._will = read(payload)
        return wire.frame_json(wire.KNOWS, version=version)

    def in_order(self, *, host_is_lost: bool) -> Iterator[list[tuple[str, int]]]:
        """Yields where each listens; starts this worker's own when it is its turn.

        Args:
            host_is_lost: whether the launcher's host does not answer any more; else it is known
                only that the launcher is gone.
        """
        for rank, addresses in self._order:
            if rank == self._rank and self.addresses:
                self._start("host" if host_is_lost else "launcher")
                addresses = f"127.0.0.1:{address.pairs(addresses)[0][1]}"
            yield address.pairs(addresses)

    @property
    def process(self) -> int:
        """The one that this worker has started; 0: none."""
        return 0 if self._heir is None else self._heir.pid

    def wait(self) -> None:
        """Waits for the end of the one that this worker has started."""
        if self._heir is not None:
            self._heir.wait()

    def _start(self, lost: str) -> None:
        table = os.memfd_create("tfhvdrun-will")
        os.write(table, self._will)
        passed = (self._listener.fileno(), table)
        self._listener.listen(address.BACKLOG)
        program = str(Path(__file__).absolute().with_name("heir.py"))
        # Tools find who supervises a job by what its processes have been told.
        environ = {**os.environ, environment.ADDRESS: self.addresses}
        with _log() as log:
            self._heir = subprocess.Popen(
                [sys.executable, "-E", "-S", program, *map(str, passed), lost],
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=passed,
                start_new_session=True,
            )
        os.close(table)
        self._listener.close()
        self.addresses = ""


def frame(version: int, heirs: Collection[tuple[int, str]], will: bytes) -> bytes:
    """The frame by which workers are told."""
    head = json.dumps({"version": version, "heirs": list(heirs)}).encode()
    return wire.frame(wire.WILL, head + b"\n" + will)


def read(payload: bytes) -> tuple[int, list[tuple[int, str]], bytes]:
    """The version, the heirs in their order, and the will, of such a frame's payload."""
    head, _, will = payload.partition(b"\n")
    fields = wire.read_json(head)
    return int(fields["version"]), [(int(rank), str(at)) for rank, at in fields["heirs"]], will


def _log() -> IO[bytes]:
    """The file that takes what all ranks print from now on."""
    name = f"tfhvdrun-{socket.gethostname()}-{os.getpid()}.log"
    with contextlib.suppress(OSError):
        return Path(name).open("ab")
    return (Path(tempfile.gettempdir()) / name).open("ab")
