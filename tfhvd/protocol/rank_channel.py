"""What a rank tells the agent around it: where its flight record is, how it comes and leaves.

The agent keeps the record open, and so can read it after the rank was killed. The rank that fails
first is often not the first that ends: it waits until the others have taken note, and those end
meanwhile, with errors of their own and other exit codes. Only the rank itself knows whether it
fails by itself, or because another did. And only by its word is the end of
its process told from that of a rank that is gone, whatever the exit code.

A notice is one datagram to a socket of the agent. The socket's name is abstract, so that no file
can be left behind; a secret beside it keeps other users' datagrams out. A rank that nobody waits
for (started by mpirun, or by hand) sends nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from array import array
from collections.abc import MutableMapping
from dataclasses import dataclass

# In the environment of a rank: "name of the socket:secret". No setting of tfhvd, which would begin
# with TFHVD_.
NOTICE = "_TFHVDRUN_NOTICE"

_ASIDE = 1 << 14  # characters, of which each may take six bytes
_LIMIT = 1 << 17  # bytes; a longer datagram is no notice


@dataclass(frozen=True)
class Notice:
    """One notice; one of the attributes is not None.

    Attributes:
        follows: the rank begins to leave, and does so because another one has failed, or not.
        takes_part: whether it takes part from now on, or has said goodbye to the others.
        record: a descriptor of its flight record, which the receiver of the notice closes.
        aside: what belongs to its stderr, but needs not be seen but in files.
        joining: what it says to the launcher of an elastic job; see `Sender.ready` and on.
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
        sock: readable when a notice has come.
    """

    def __init__(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.sock.bind("")  # the kernel chooses an abstract name: a zero byte and five digits
        self.sock.setblocking(False)
        self._secret = os.urandom(16).hex()
        name = self.sock.getsockname()
        self.address = f"{bytes(name).lstrip(bytes(1)).decode()}:{self._secret}"

    def take(self) -> list[Notice]:
        """Takes the notices that have come."""
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
        environ: the rank's environment. The address is taken out of it: processes that the rank
            starts are not the rank.
    """

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        self._name, _, self._secret = environ.pop(NOTICE, "").partition(":")

    @property
    def is_heard(self) -> bool:
        """Whether there is an agent that listens."""
        return bool(self._name)

    def leave(self, *, follows: bool) -> None:
        """Says that this rank begins to leave. ``follows``: because another rank has."""
        self._send(None, follows=follows)

    def takes_part(self, yes: bool) -> None:
        """Says that this rank takes part from now on, or that it has said goodbye to the others."""
        self._send(None, takes_part=yes)

    def aside(self, text: str) -> None:
        """Says what belongs to its stderr, but is shown in files and with -v only."""
        self._send(None, aside=text[-_ASIDE:])

    def show(self, record: int) -> None:
        """Hands out the flight record of this rank, a descriptor; -1: there is none."""
        if record >= 0:
            self._send(record)

    def ready(self, identity: str, trained: int) -> None:
        """Says, in an elastic job, that this rank has met the others, or waits to join.

        Args:
            identity: what must be the same on all ranks, such as versions.
            trained: how many trainings of the program are behind it.
        """
        self._send(None, joining={"ready": identity, "trained": trained})

    def let_in(self, admitted: int) -> None:
        """Says that all ranks are ready to let in those that wait.

        Args:
            admitted: the generation for which they have last done so; asked twice, it counts once.
        """
        self._send(None, joining={"let_in": admitted})

    def joined(self) -> None:
        """Says that this rank, which was let in, has met the others."""
        self._send(None, joining={"joined": True})

    def begun(self, results: list[object] | None, trained: int) -> None:
        """Says that this rank trains now.

        Args:
            results: what all ranks have got alike before, for those that come later; None where
                these cannot do without the others. See `tfhvd.runtime.elastic.call_log`.
            trained: how many trainings of the program are behind it.
        """
        self._send(None, joining={"begun": results, "trained": trained})

    def barrier(self, number: int) -> None:
        """Says that this rank, which has come later, waits at a barrier before it trains.

        Args:
            number: of the barrier, from 1.
        """
        self._send(None, joining={"barrier": number})

    def outside(self, *, for_good: bool) -> None:
        """Says that this rank, which has come later, waits at a collective before it trains.

        Args:
            for_good: whether nobody is let in there; else until the others train.
        """
        self._send(None, joining={"outside": for_good})

    def _send(self, file: int | None, **fields: object) -> None:
        if not self._name:
            return
        data = json.dumps({"secret": self._secret, **fields}).encode()
        files = [] if file is None else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [file]))]
        # The agent may be gone; the rank's own end must not depend on it.
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)
            sock.connect(bytes(1) + self._name.encode())
            sock.sendmsg([data], files)
