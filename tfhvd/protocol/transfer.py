"""Exchange: `run` sends its function to the ranks over it, and receives their results.

Each rank connects once, proves that it knows the token, and sends its number. It receives the
function, and sends one message when the function has ended. Only signed bytes are unpickled; see
network.signed_channel. The connection stays open in between, so that a rank notices if the process
that waits for its result is gone.
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

_ABOUT = "call"  # the name of this service in the handshake
_RANK = struct.Struct("!I")


class Exchange:
    """The side of `run`: serves each rank from a separate thread, until closed.

    Args:
        payload: the bytes for every rank.
        environ: the environment with the settings for ports and encryption.
        remote: whether ranks may be on other hosts.
        hosts: the names of these hosts.
        nics: the only network interfaces whose addresses to use, if any are given.

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
        """Accepts no further rank."""
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
            guest.sock.sendall(b"\0")  # the rank may end: its message has arrived


def join(addresses: str, token: str, rank: int) -> tuple[Channel, bytes]:
    """The side of a rank: connects, and returns the connection, which the caller owns, and payload.

    Raises:
        OSError: with the reason for each address, if no address leads to the exchange.
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
