"""What lies between two probes: the time of a round trip, and bytes per second each way.

One TCP connection carries one measurement, as one connection of MPI would carry a message. The side
that is asked serves; the other one proves that it knows the token, and begins with the kind of
measurement.

    P  answers each byte with a byte, until the connection ends
    U  takes what comes for so many seconds, then answers with bytes per second
    D  sends for as long as the other side takes it

What is measured is never encrypted, for the messages of ranks are not; it says nothing.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import select
import socket
import struct
import threading
import time
from collections.abc import Sequence

from tfhvd.network import address, connector, handshake, ports
from tfhvd.network.listener import Door
from tfhvd.network.signed_channel import exactly
from tfhvd.protocol import variables

_ABOUT = "link"  # what listens, as handshake calls it
_HEAD = struct.Struct("!cd")  # kind, seconds
_RATE = struct.Struct("!d")
_CHUNK = 256 << 10  # bytes
_CONNECT = 2.0  # seconds
_IDLE = 5.0  # seconds without a byte after which a measurement has failed
_PINGS = 50
_SECONDS_OF_PINGS = 0.3


@dataclasses.dataclass(frozen=True)
class Measured:
    """What one side has found out.

    Attributes:
        address: by which the other side was reached; "" if by none.
        round_trip: seconds.
        up: bytes per second, to the other side.
        down: the same, from there.
        refused: each address that did not lead there, and why.
        error: why nothing was measured; "" if something was.
    """

    address: str = ""
    round_trip: float = 0.0
    up: float = 0.0
    down: float = 0.0
    refused: tuple[tuple[str, str], ...] = ()
    error: str = ""


class Server:
    """Serves measurements, from separate threads, as long as the process lives.

    Args:
        token: what the other side must know.

    Attributes:
        port: where.
    """

    def __init__(self, token: str) -> None:
        self._door = Door(
            address.listen(remote=True, of=ports.of(variables.own())), _own(token), _ABOUT
        )
        self.port = self._door.port
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        for guest in self._door.guests():
            threading.Thread(target=self._attend, args=(guest.sock,), daemon=True).start()

    def _attend(self, sock: socket.socket) -> None:
        with sock, contextlib.suppress(OSError):
            sock.settimeout(_IDLE)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            kind, seconds = _HEAD.unpack(exactly(sock, _HEAD.size))
            if kind == b"P":
                while byte := sock.recv(1):
                    sock.sendall(byte)
            elif kind == b"U":
                sock.sendall(_RATE.pack(_rate(sock, seconds)))
                # What is left unread when a socket is closed takes the answer with it.
                while sock.recv(_CHUNK):
                    pass
            elif kind == b"D":
                chunk = bytes(_CHUNK)
                while True:
                    sock.sendall(chunk)


def measure(targets: Sequence[str], port: int, token: str, seconds: float) -> Measured:
    """Measures what lies between this process and a server.

    Args:
        targets: addresses of the server's host; all are tried, the first that leads there is used.
        port: the server's.
        token: the server's.
        seconds: for each way.
    """
    with concurrent.futures.ThreadPoolExecutor(max(1, len(targets))) as pool:
        reasons = list(pool.map(lambda target: _why_not(target, port, token), targets))
    refused = [(target, why) for target, why in zip(targets, reasons) if why]
    found = next((target for target, why in zip(targets, reasons) if not why), "")
    if not found:
        return Measured(refused=tuple(refused), error="no address leads there")
    try:
        with _open(found, port, token, b"P") as sock:
            round_trip = _ping(sock)
        with _open(found, port, token, b"U", seconds) as sock:
            up = _send(sock)
            # What is not sent yet shall not be in the way of other measurements.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with _open(found, port, token, b"D", seconds) as sock:
            down = _rate(sock, seconds)
    except OSError as error:
        return Measured(found, refused=tuple(refused), error=str(error))
    return Measured(found, round_trip, up, down, tuple(refused))


def _own(token: str) -> str:
    """The token of measurements, which does not ask for encryption."""
    return handshake.derived(token, _ABOUT)


def _why_not(target: str, port: int, token: str) -> str:
    """Why an address does not lead to the server; "" if it does."""
    try:
        _open(target, port, token, b"P").close()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _open(target: str, port: int, token: str, kind: bytes, seconds: float = 0.0) -> socket.socket:
    limits = {"to_connect": _CONNECT, "to_prove": _CONNECT}
    sock = connector.connect((target, port), _own(token), _ABOUT, **limits).sock
    try:
        sock.settimeout(_IDLE)
        sock.sendall(_HEAD.pack(kind, seconds))
    except OSError:
        sock.close()
        raise
    return sock


def _ping(sock: socket.socket) -> float:
    """The median round trip, after a first one that is not counted."""
    times: list[float] = []
    until = time.perf_counter() + _SECONDS_OF_PINGS
    while len(times) <= _PINGS and (len(times) < 3 or time.perf_counter() < until):
        began = time.perf_counter()
        sock.sendall(b".")
        exactly(sock, 1)
        times.append(time.perf_counter() - began)
    counted = sorted(times[1:])
    return counted[len(counted) // 2]


def _rate(sock: socket.socket, seconds: float) -> float:
    """Bytes per second of what comes: of the second half, for TCP begins slowly."""
    memory = bytearray(4 * _CHUNK)
    received = at_half = 0
    half = 0.0
    began = now = 0.0
    while not began or now < began + seconds:
        count = sock.recv_into(memory)
        now = time.perf_counter()
        if not count:
            break
        received += count
        began = began or now
        if not half and now >= began + seconds / 2:
            half, at_half = now, received
    # Of a link so slow that little came behind the half, all of it counts.
    if half and now > half:
        return (received - at_half) / (now - half)
    return received / max(now - began, seconds)


def _send(sock: socket.socket) -> float:
    """Sends until the other side has seen enough; returns what it says."""
    chunk = memoryview(bytes(_CHUNK))
    sock.setblocking(False)
    answer = b""
    while len(answer) < _RATE.size:
        readable, writable, _ = select.select([sock], [sock], [], _IDLE)
        if readable:
            more = sock.recv(_RATE.size - len(answer))
            if not more:
                raise OSError("the other side closed the connection")
            answer += more
        elif writable:
            with contextlib.suppress(BlockingIOError):
                sock.send(chunk)
        else:
            raise OSError(f"nothing was sent or received for {_IDLE:g} s")
    return float(_RATE.unpack(answer)[0])
