"""Where `run` hands its function to the ranks and takes what they return.

Each rank connects once, proves that it knows the token, says its number, is sent the function, and
sends one message when it has come to its end. Nothing is unpickled that is not signed: see channel.
The connection stays open in between: a rank sees by it that whoever waits for its result is gone.
"""

from __future__ import annotations

import contextlib
import struct
import threading
from collections.abc import Mapping, Sequence

from tfhvd.network import address, connector, handshake, ports, tokens
from tfhvd.network.acceptor import Guest
from tfhvd.network.listener import Door
from tfhvd.network.signed_channel import Channel

# In the environment of a rank. The prefix carries them to other hosts.
ADDRESS = "TFHVDRUN_CALL_ADDRESS"
TOKEN = "TFHVDRUN_CALL_TOKEN"

_ABOUT = "call"  # what listens, as handshake calls it
_RANK = struct.Struct("!I")


class Exchange:
    """The side of `run`: serves every rank from threads of its own, until closed.

    Args:
        payload: what every rank is sent.
        environ: whose settings say at which ports, and whether to encrypt.
        remote: whether ranks may be on other hosts.
        hosts: their names.
        nics: the only network interfaces to name, if any are given.

    Attributes:
        answers: (rank, message) in the order of arrival.
    """

    def __init__(
        self,
        payload: bytes,
        environ: Mapping[str, str],
        *,
        remote: bool,
        hosts: Sequence[str] = (),
        nics: Sequence[str] = (),
    ) -> None:
        self.answers: list[tuple[int, bytes]] = []
        self._payload = payload
        token = tokens.new(environ)
        self._door = Door(address.listen(remote=remote, of=ports.of(environ)), token, _ABOUT)
        self.environment = {
            ADDRESS: address.addresses(self._door.port, remote=remote, hosts=hosts, nics=nics),
            TOKEN: token,
        }
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        """Takes no further rank."""
        self._door.stop()

    def _serve(self) -> None:
        for guest in self._door.guests():
            threading.Thread(target=self._attend, args=(guest,), daemon=True).start()

    def _attend(self, guest: Guest) -> None:
        with guest.sock, contextlib.suppress(OSError, struct.error):
            address.detect_loss(guest.sock)
            channel = Channel(guest.sock, guest.key, listens=True)
            guest.sock.settimeout(handshake.LIMIT)
            (rank,) = _RANK.unpack(channel.receive(_RANK.size))
            guest.sock.settimeout(None)
            channel.send(self._payload)
            self.answers.append((rank, channel.receive()))
            guest.sock.sendall(b"\0")  # the rank may end: its message is here


def join(addresses: str, token: str, rank: int) -> tuple[Channel, bytes]:
    """The side of a rank: returns the connection, which the caller owns, and the payload.

    Raises:
        OSError: with every address's reason, if none leads to the exchange.
    """
    reasons = []
    for host, port in address.pairs(addresses):
        try:
            guest = connector.connect((host, port), token, _ABOUT, to_connect=10)
        except OSError as error:
            reasons.append(f"{host}:{port}: {error}")
            continue
        try:
            address.detect_loss(guest.sock)
            channel = Channel(guest.sock, guest.key, listens=False)
            channel.send(_RANK.pack(rank))
            return channel, channel.receive()
        except OSError as error:
            reasons.append(f"{host}:{port}: {error}")
            guest.sock.close()
    raise OSError("; ".join(reasons))
