"""The agents' side of a takeover by another host.

The launcher has sent a list of successors. The first one that is reachable takes over: its agent
starts a supervisor (standby_main.py), and all other agents connect to it.
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

from tfhvd.network import address, ports
from tfhvd.protocol import endpoints, messages, variables
from tfhvd.protocol.messages import FrameKind


class Successor:
    """An agent's list of successors; the agent starts the one that is on its host.

    Args:
        rank: the agent's rank.
        nics: the network interfaces at which other hosts reach this one; see endpoints.TCP.
        towards: the hosts on which the other ranks may be.
        of: the ports at which a successor may listen.

    Attributes:
        addresses: the addresses of a successor on this host; "" when this successor runs.
    """

    def __init__(self, rank: int, nics: str, towards: Iterable[str], of: range = ports.ANY) -> None:
        self._rank = rank
        self._listener, addresses = endpoints.reserve_port(nics, towards, of)
        self.addresses = address.for_others(addresses)
        self._order: list[tuple[int, str]] = []
        self._state = b""
        self._started: subprocess.Popen[bytes] | None = None

    def take(self, payload: bytes) -> bytes:
        """Keep the launcher's TAKEOVER_STATE; return the answer to it."""
        version, self._order, self._state = read(payload)
        return messages.frame_json(FrameKind.TAKEOVER_STATE_RECEIVED, version=version)

    def in_order(self, *, host_is_lost: bool) -> Iterator[list[tuple[str, int]]]:
        """Yield the addresses of each successor; start the one on this host when its turn comes.

        Args:
            host_is_lost: whether the launcher's host does not answer; else only the launcher is
                known to have ended.
        """
        for rank, addresses in self._order:
            if rank == self._rank and self.addresses:
                self._start("host" if host_is_lost else "launcher")
                addresses = f"127.0.0.1:{address.pairs(addresses)[0][1]}"
            yield address.pairs(addresses)

    @property
    def process(self) -> int:
        """The process id of the successor that this agent has started; 0: none."""
        return 0 if self._started is None else self._started.pid

    def wait(self) -> None:
        """Wait for the end of the successor that this agent has started."""
        if self._started is not None:
            self._started.wait()

    def _start(self, lost: str) -> None:
        table = os.memfd_create("tfhvdrun-will")
        os.write(table, self._state)
        passed = (self._listener.fileno(), table)
        self._listener.listen(address.BACKLOG)
        program = str(Path(__file__).absolute().parents[1] / "standby_main.py")
        # Tools find the supervisor of a job by the environment of its processes.
        environ = {**os.environ, variables.ADDRESS: self.addresses}
        with _log() as log:
            self._started = subprocess.Popen(
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


def frame(version: int, successors: Collection[tuple[int, str]], will: bytes) -> bytes:
    """Return a TAKEOVER_STATE message."""
    head = json.dumps({"version": version, "heirs": list(successors)}).encode()
    return messages.frame(FrameKind.TAKEOVER_STATE, head + b"\n" + will)


def read(payload: bytes) -> tuple[int, list[tuple[int, str]], bytes]:
    """Return the version, the ordered successors and the state from the message's payload."""
    head, _, will = payload.partition(b"\n")
    fields = messages.read_json(head)
    return int(fields["version"]), [(int(rank), str(at)) for rank, at in fields["heirs"]], will


def _log() -> IO[bytes]:
    """Open the file for the output of all ranks after the takeover."""
    name = f"tfhvdrun-{socket.gethostname()}-{os.getpid()}.log"
    with contextlib.suppress(OSError):
        return Path(name).open("ab")
    return (Path(tempfile.gettempdir()) / name).open("ab")
