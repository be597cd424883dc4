"""How ranks that meet over TCP find each other: what the launcher lets each one know.

Each worker opens the port at which its rank will listen, and says where in its hello. When all
have, the launcher tells every worker all addresses; the rank inherits its port and that table.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass

from tfhvd.launch import address

# In the environment of a worker: its rank is to meet the others over TCP. The value: the network
# interfaces that it may name, with commas; "" for all; LOOPBACK where all ranks are on one host.
TCP = "TFHVDRUN_TCP"
LOOPBACK = "lo"
# In the environment of a rank: the descriptors of its port and of the table. No setting of tfhvd,
# which would begin with TFHVD_.
INHERITED = "_TFHVDRUN_ENDPOINTS"


@dataclass(frozen=True)
class Endpoints:
    """What a rank must know to meet the others.

    Attributes:
        rank: its number.
        addresses: by rank, "host:port,..." in the order to try them.
        token: the job's secret.
        listener: the descriptor of its port, whose owner is who has this object.
    """

    rank: int
    addresses: tuple[str, ...]
    token: str
    listener: int


class Port:
    """The worker's side: the port at which its rank will listen.

    Args:
        rank: its number.
        nics: the value of TCP.

    Attributes:
        addresses: where others reach it.
    """

    def __init__(self, rank: int, nics: str) -> None:
        self._rank = rank
        remote = nics != LOOPBACK
        self._listener = address.listen(remote=remote)
        self._listener.setblocking(False)
        port = self._listener.getsockname()[1]
        self.addresses = address.addresses(port, remote=remote, nics=filter(None, nics.split(",")))

    def hand_over(self, addresses: Sequence[str], token: str) -> dict[str, str]:
        """Makes ready what the rank inherits; returns what is added to its environment."""
        table = os.memfd_create("tfhvd-endpoints", 0)
        fields = {"rank": self._rank, "addresses": list(addresses), "token": token}
        os.write(table, json.dumps(fields).encode())
        for descriptor in (self._listener.fileno(), table):
            os.set_inheritable(descriptor, True)
        return {INHERITED: f"{self._listener.detach()},{table}"}


def take(environ: MutableMapping[str, str]) -> Endpoints | None:
    """Takes over what this process has inherited: once, and not for processes that it starts.

    Returns:
        None where there is nothing: the job is one of MPI, or of one process.
    """
    text = environ.pop(INHERITED, "")
    if not text:
        return None
    listener, table = (int(part) for part in text.split(","))
    os.set_inheritable(listener, False)
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, table)
        fields = json.loads(os.pread(table, os.fstat(table).st_size, 0))
    return Endpoints(fields["rank"], tuple(fields["addresses"]), fields["token"], listener)
