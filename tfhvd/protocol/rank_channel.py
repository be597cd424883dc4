"""The channel from a rank to its agent: notices of its flight record, of its join and its leave.

The agent keeps the flight record open, and so can read it after the rank was killed. The rank that
fails first is often not the first that ends: it waits until the others know of the failure. These
end meanwhile, with other errors and exit codes. Only the rank itself knows whether it fails by
itself or because another rank has failed. And only its notice distinguishes the end of a rank that
has left the job from a failure; the exit code does not.

A notice is one datagram to a socket of the agent. The name of the socket is abstract, so that no
file can be left behind. Each datagram contains a secret, so that the agent can ignore datagrams of
other users. A rank without an agent (started by mpirun, or by hand) sends nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from array import array
from collections.abc import MutableMapping
from dataclasses import dataclass

# In the environment of a rank: "name of the socket:secret". The name does not begin with TFHVD_,
# because it is not a setting.
NOTICE = "_TFHVDRUN_NOTICE"

_ASIDE = 1 << 14  # characters; each may take six bytes
_LIMIT = 1 << 17  # bytes; a longer datagram is not a notice


@dataclass(frozen=True)
class Notice:
    """One notice; one of the attributes is not None.

    Attributes:
        follows: the rank begins to leave; True if it does so because another rank has failed.
        takes_part: True if the rank takes part from now on, False if it has left the job.
        record: a descriptor of its flight record, which the receiver of the notice closes.
        aside: text of its stderr that only files and -v show.
        joining: the fields of a JOINING frame in an elastic job; see `Sender.ready` and below.
    """

    follows: bool | None = None
    takes_part: bool | None = None
    record: int | None = None
    joining: dict[str, object] | None = None
    aside: str | None = None


class Receiver:
    """The agent's side.

    Attributes:
        address: the value of NOTICE for the rank.
        sock: readable when a notice has arrived.
    """

    def __init__(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.sock.bind("")  # the kernel chooses an abstract name: a zero byte and five digits
        self.sock.setblocking(False)
        self._secret = os.urandom(16).hex()
        name = self.sock.getsockname()
        self.address = f"{bytes(name).lstrip(bytes(1)).decode()}:{self._secret}"

    def take(self) -> list[Notice]:
        """Returns the notices that have arrived."""
        notices = []
        with contextlib.suppress(BlockingIOError):
            while True:
                data, files, _, _ = socket.recv_fds(self.sock, _LIMIT, 1)
                notice = self._read(data, files)
                if notice is not None:
                    notices.append(notice)
                for file in files:
                    if notice is None or file != notice.record:
                        os.close(file)
        return notices

    def _read(self, data: bytes, files: list[int]) -> Notice | None:
        with contextlib.suppress(ValueError, KeyError, TypeError):
            fields = json.loads(data)
            if fields["secret"] != self._secret:
                return None
            if "follows" in fields:
                return Notice(follows=bool(fields["follows"]))
            if "takes_part" in fields:
                return Notice(takes_part=bool(fields["takes_part"]))
            if "aside" in fields:
                return Notice(aside=str(fields["aside"]))
            if "joining" in fields:
                return Notice(joining=dict(fields["joining"]))
            if files:
                return Notice(record=files[0])
        return None


class Sender:
    """The rank's side.

    Args:
        environ: the rank's environment. The address is removed from it, because processes that the
            rank starts are not the rank.
    """

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        self._name, _, self._secret = environ.pop(NOTICE, "").partition(":")

    @property
    def is_heard(self) -> bool:
        """Whether there is an agent that listens."""
        return bool(self._name)

    def leave(self, *, follows: bool) -> None:
        """Says that this rank begins to leave. ``follows``: because another rank has failed."""
        self._send(None, follows=follows)

    def takes_part(self, yes: bool) -> None:
        """Says whether this rank takes part from now on, or has left the job."""
        self._send(None, takes_part=yes)

    def aside(self, text: str) -> None:
        """Sends text of this rank's stderr that only files and -v show."""
        self._send(None, aside=text[-_ASIDE:])

    def show(self, record: int) -> None:
        """Sends a descriptor of this rank's flight record; does nothing for -1."""
        if record >= 0:
            self._send(record)

    def ready(self, identity: str, trained: int) -> None:
        """Says, in an elastic job, that this rank is connected to the others, or waits to join.

        Args:
            identity: a text that must be the same on all ranks, with versions.
            trained: the number of trainings that the program has finished.
        """
        self._send(None, joining={"ready": identity, "trained": trained})

    def let_in(self, admitted: int) -> None:
        """Says that all ranks are ready to admit the pending ranks.

        Args:
            admitted: the generation of the last admission. Two requests with the same generation
                count as one.
        """
        self._send(None, joining={"let_in": admitted})

    def joined(self) -> None:
        """Says that this rank is connected to the others after its admission."""
        self._send(None, joining={"joined": True})

    def begun(self, results: list[object] | None, trained: int) -> None:
        """Says that this rank begins to train.

        Args:
            results: the log of the calls before the training, for joining ranks; None if ranks
                cannot join this training. See `tfhvd.runtime.elastic.call_log`.
            trained: the number of trainings that the program has finished.
        """
        self._send(None, joining={"begun": results, "trained": trained})

    def barrier(self, number: int) -> None:
        """Says that this joining rank waits at a barrier before it trains.

        Args:
            number: of the barrier, from 1.
        """
        self._send(None, joining={"barrier": number})

    def outside(self, *, for_good: bool) -> None:
        """Says that this joining rank waits at a collective before it trains.

        Args:
            for_good: whether no rank can be admitted there; otherwise it waits until the others
                train.
        """
        self._send(None, joining={"outside": for_good})

    def _send(self, file: int | None, **fields: object) -> None:
        if not self._name:
            return
        data = json.dumps({"secret": self._secret, **fields}).encode()
        files = [] if file is None else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [file]))]
        # The agent may be gone, and the end of the rank must not depend on it.
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)
            sock.connect(bytes(1) + self._name.encode())
            sock.sendmsg([data], files)
