"""How ranks that meet over TCP find each other: what the launcher lets each one know.

Each agent opens the port at which its rank will listen, and says where in its hello. When all
have, the launcher tells every agent all addresses; the rank inherits its port and that table.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfhvd.network import address, handshake, ports
from tfhvd.protocol import variables

# In the environment of an agent: its rank is to meet the others over TCP. The value: the network
# interfaces that it may name, with commas; "" for all; LOOPBACK where all ranks are on one host.
TCP = "TFHVDRUN_TCP"
LOOPBACK = "lo"
# In the environment of a rank: the descriptors of its port, of the table, and of what says who
# takes part as ranks are lost, if that may be. No setting of tfhvd, which would begin with TFHVD_.
INHERITED = "_TFHVDRUN_ENDPOINTS"


@dataclass(frozen=True)
class Endpoints:
    """What a rank must know to meet the others.

    Attributes:
        rank: its number.
        addresses: by rank, "host:port,..." in the order to try them.
        token: of the ranks' connections to each other.
        listener: the descriptor of its port, whose owner is who has this object.
        members: that from which it reads who takes part as ranks are lost; -1: none may be.
        hosts: of a rank that comes later, the hosts of all, by rank, once it takes part; else none.
        place: its rank among these.
        beginning: the descriptor of what the others have got alike before they trained, and of the
            barriers that are passed; -1: none.
    """

    rank: int
    addresses: tuple[str, ...]
    token: str
    listener: int
    members: int = -1
    hosts: tuple[str, ...] = ()
    place: int = 0
    beginning: int = -1

    def read_beginning(self) -> dict[str, Any] | None:
        """Returns the latest fields of wire.BEGUN; None where they have not come yet."""
        return next(self._told("results"), None)

    def passed_barriers(self) -> int:
        """Returns how many barriers this rank may go on from."""
        passed = (fields["barriers"].get(str(self.rank), 0) for fields in self._told("barriers"))
        return max(passed, default=0)

    def _told(self, key: str) -> Iterator[dict[str, Any]]:
        """Yields what was told that has this field, the latest first."""
        data = os.pread(self.beginning, os.fstat(self.beginning).st_size, 0)
        *whole, _ = data.split(b"\n")  # what follows the last line's end is being written
        for line in reversed(whole):
            if key in (fields := json.loads(line)):
                yield dict(fields)

    @property
    def comes_later(self) -> bool:
        """Whether the job was there before this rank, which waits to join."""
        return self.members >= 0 and not self.addresses


class Port:
    """The agent's side: the port at which its rank will listen.

    Args:
        rank: its number.
        nics: the value of TCP.
        token: the job's.
        towards: hosts that the other ranks may be on, such as the launcher's: what leads to them
            is tried first, by IPv4 and IPv6.
        of: the ports that it may be one of.

    Attributes:
        addresses: where others reach it.
    """

    def __init__(
        self,
        rank: int,
        nics: str,
        token: str,
        towards: Iterable[str] = (),
        of: range = ports.ANY,
    ) -> None:
        self._rank = rank
        self._token = token
        self._says: int | None = None
        self._beginning: int | None = None
        self._listener, self.addresses = reserve_port(nics, towards, of)
        self._listener.listen(address.BACKLOG)
        self._listener.setblocking(False)

    def hand_over(
        self,
        addresses: Sequence[str],
        salt: str,
        elastic: bool = False,
        hosts: Sequence[str] = (),
        place: int = 0,
    ) -> dict[str, str]:
        """Makes ready what the rank inherits; returns what is added to its environment.

        Args:
            addresses: of all ranks; of none where this one comes later.
            salt: from which the token of these is derived.
            elastic: whether `say` is to tell the rank who takes part.
            hosts: see Endpoints.
            place: likewise.
        """
        table = os.memfd_create("tfhvd-endpoints", 0)
        fields = {"rank": self._rank, "addresses": list(addresses)}
        fields["token"] = handshake.derived(self._token, salt)
        fields |= {"hosts": list(hosts), "place": place}
        os.write(table, json.dumps(fields).encode())
        inherited = [self._listener.detach(), table]
        if elastic:
            reads, self._says = os.pipe()
            self._beginning = os.memfd_create("tfhvd-beginning")
            inherited += [reads, self._beginning]
        for descriptor in inherited:
            os.set_inheritable(descriptor, True)
        return {INHERITED: ",".join(map(str, inherited))}

    def tell(self, data: bytes) -> None:
        """Tells the rank, if it may need that, what JSON says of those that are outside.

        Args:
            data: of wire.BEGUN or wire.PASSED; of the former what comes last counts.
        """
        if self._beginning is not None:
            os.pwrite(self._beginning, data + b"\n", os.fstat(self._beginning).st_size)

    def say(self, line: str) -> None:
        """Tells the rank who takes part, if it may need that; it may have ended.

        Args:
            line: as `Members` makes it. A roster's salt becomes the token that the rank needs.
        """
        word, *rest = line.split(" ")
        if word == "roster":
            rest[2] = handshake.derived(self._token, rest[2])
        if self._says is not None:
            with contextlib.suppress(OSError):
                os.write(self._says, " ".join([word, *rest]).encode())


def port_for(environ: Mapping[str, str], rank: int) -> Port | None:
    """The port of an agent's rank, where its environment says that there is to be one.

    Raises:
        ports.PortsTakenError: none is free.
    """
    nics = environ.get(TCP)
    if nics is None:
        return None
    towards = [host for host, _ in address.pairs(environ[variables.ADDRESS])]
    token = environ.get(variables.TOKEN, "")
    return Port(rank, nics, token, towards, ports.of(environ))


def reserve_port(
    nics: str, towards: Iterable[str] = (), of: range = ports.ANY
) -> tuple[socket.socket, str]:
    """A socket that is to listen, whose owner the caller is, and where others will reach it.

    Args:
        nics: the value of TCP.
        towards: see Port.
        of: likewise.
    """
    remote = nics != LOOPBACK
    reserved = address.reserve(remote=remote, of=of)
    names = filter(None, nics.split(","))
    port = reserved.getsockname()[1]
    return reserved, address.addresses(port, remote=remote, hosts=towards, nics=names)


def take(environ: MutableMapping[str, str]) -> Endpoints | None:
    """Takes over what this process has inherited: once, and not for processes that it starts.

    Returns:
        None where there is nothing: the job is one of MPI, or of one process.
    """
    text = environ.pop(INHERITED, "")
    if not text:
        return None
    listener, table, *rest = (int(part) for part in text.split(","))
    members, beginning = rest or (-1, -1)
    for descriptor in (listener, *rest):
        os.set_inheritable(descriptor, False)
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, table)
        fields = json.loads(os.pread(table, os.fstat(table).st_size, 0))
    return Endpoints(
        fields["rank"],
        tuple(fields["addresses"]),
        fields["token"],
        listener,
        members,
        tuple(fields["hosts"]),
        fields["place"],
        beginning,
    )
