"""The endpoints of ranks that connect over TCP, which the launcher distributes.

Each agent opens the port on which its rank will listen, and sends the addresses in its HELLO. As
soon as all agents have done so, the launcher sends all addresses to every agent. The rank inherits
the port and the table of addresses.
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

# In the environment of an agent: its rank connects to the others over TCP. The value: the network
# interfaces for the rank's addresses, with commas; "" for all; LOOPBACK if all ranks are on one
# host.
TCP = "TFHVDRUN_TCP"
LOOPBACK = "lo"
# In the environment of a rank: the descriptors of its port and of the table; in an elastic job also
# of a pipe with the members and of the replay log. The name does not begin with TFHVD_, because it
# is not a setting.
INHERITED = "_TFHVDRUN_ENDPOINTS"


@dataclass(frozen=True)
class Endpoints:
    """The information that a rank needs to connect to the others.

    Attributes:
        rank: its number.
        addresses: for each rank "host:port,...", in the order to try them.
        token: the token of the connections between ranks.
        listener: the descriptor of the rank's port; the owner of this object owns it.
        members: the descriptor from which the rank reads changes of the members; -1 if the job is
            not elastic.
        hosts: for a rank that joins later, the hosts of all ranks after its admission; else empty.
        place: the number of the joining rank among these.
        beginning: the descriptor of the replay log and of the passed barriers; -1 without them.
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
        """Returns the latest fields of a REPLAY_LOG; None before the first one."""
        return next(self._told("results"), None)

    def passed_barriers(self) -> int:
        """Returns the number of barriers from which this rank may continue."""
        passed = (fields["barriers"].get(str(self.rank), 0) for fields in self._told("barriers"))
        return max(passed, default=0)

    def _told(self, key: str) -> Iterator[dict[str, Any]]:
        """Yields the messages with this field, the latest first."""
        data = os.pread(self.beginning, os.fstat(self.beginning).st_size, 0)
        *whole, _ = data.split(b"\n")  # text after the last newline is still being written
        for line in reversed(whole):
            if key in (fields := json.loads(line)):
                yield dict(fields)

    @property
    def comes_later(self) -> bool:
        """Whether this rank joins a running job."""
        return self.members >= 0 and not self.addresses


class Port:
    """The agent's side: the port on which its rank will listen.

    Args:
        rank: the number of the rank.
        nics: the value of TCP.
        token: the job's.
        towards: hosts of other ranks, such as the launcher's host. The addresses of the interfaces
            that lead to them, by IPv4 and IPv6, come first.
        of: the ports to choose from.

    Attributes:
        addresses: the addresses at which others reach the rank.
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
        """Prepares the descriptors that the rank inherits; returns additions to its environment.

        Args:
            addresses: of all ranks; empty if this rank joins later.
            salt: for the derivation of the ranks' token.
            elastic: whether `say` must be able to send the members to the rank.
            hosts: see Endpoints.
            place: see Endpoints.
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
        """Sends a message about joining ranks to the rank, if the job is elastic.

        Args:
            data: the payload of a REPLAY_LOG, of which the last one counts, or of BARRIERS_PASSED.
        """
        if self._beginning is not None:
            os.pwrite(self._beginning, data + b"\n", os.fstat(self._beginning).st_size)

    def say(self, line: str) -> None:
        """Sends a line about the members to the rank, if the job is elastic; the rank may be gone.

        Args:
            line: a line of launch/state/roster.py. In a roster, the token that the rank needs
                replaces the salt.
        """
        word, *rest = line.split(" ")
        if word == "roster":
            rest[2] = handshake.derived(self._token, rest[2])
        if self._says is not None:
            with contextlib.suppress(OSError):
                os.write(self._says, " ".join([word, *rest]).encode())


def port_for(environ: Mapping[str, str], rank: int) -> Port | None:
    """Returns the port of an agent's rank; None if the environment does not ask for one.

    Raises:
        ports.PortsTakenError: if no port is free.
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
    """Returns a bound socket, which the caller owns, and the addresses at which others reach it.

    Args:
        nics: the value of TCP.
        towards: see Port.
        of: see Port.
    """
    remote = nics != LOOPBACK
    reserved = address.reserve(remote=remote, of=of)
    names = filter(None, nics.split(","))
    port = reserved.getsockname()[1]
    return reserved, address.addresses(port, remote=remote, hosts=towards, nics=names)


def take(environ: MutableMapping[str, str]) -> Endpoints | None:
    """Takes over the inherited endpoints, once; processes that this process starts have none.

    Returns:
        None without endpoints, as in a job of MPI, or of one process.
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
