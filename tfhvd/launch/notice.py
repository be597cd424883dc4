"""What a rank tells its launcher as it leaves: whether it fails by itself, or because another did.

The rank that fails first is often not the first that ends: it waits until the others have taken
note, and those end meanwhile, with errors of their own and other exit codes. Only the rank itself
knows which of the two it is.

A notice is one datagram to a socket of the worker around the rank. The socket's name is abstract,
so that no file can be left behind; a secret beside it keeps other users' datagrams out. A rank that
nobody waits for (started by mpirun, or by hand) sends nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import MutableMapping

# In the environment of a rank: "name of the socket:secret". No setting of tfhvd, which would begin
# with TFHVD_.
NOTICE = "_TFHVDRUN_NOTICE"

_LIMIT = 4096  # bytes; a longer datagram is no notice


class Receiver:
    """The worker's side.

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

    def take(self) -> list[bool]:
        """Takes the notices that have come; of each, whether the rank follows another's failure."""
        notices = []
        with contextlib.suppress(BlockingIOError):
            while True:
                data = self.sock.recv(_LIMIT)
                with contextlib.suppress(ValueError, KeyError, TypeError):
                    fields = json.loads(data)
                    if fields["secret"] == self._secret:
                        notices.append(bool(fields["follows"]))
        return notices


class Sender:
    """The rank's side.

    Args:
        environ: the rank's environment. The address is taken out of it: processes that the rank
            starts are not the rank.
    """

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        self._name, _, self._secret = environ.pop(NOTICE, "").partition(":")

    def leave(self, *, follows: bool) -> None:
        """Says that this rank begins to leave. ``follows``: because another rank has."""
        if not self._name:
            return
        data = json.dumps({"secret": self._secret, "follows": follows}).encode()
        # The worker may be gone; the rank's own end must not depend on it.
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)
            sock.sendto(data, bytes(1) + self._name.encode())
