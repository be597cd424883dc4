"""The frames between launcher and agents, over one TCP connection for each rank.

Before the first frame, both sides have proved that they know the job's token; see
network.handshake. A frame is one byte of kind, four bytes of length (big endian), and the payload.
The payload is JSON if the comment of the kind gives fields.
"""

from __future__ import annotations

import enum
import fcntl
import json
import socket
import struct
import termios
from typing import Any

ABOUT = "launcher"  # the name of this service in the handshake

_HEAD = struct.Struct("!BI")
LIMIT = 1 << 20  # bytes of a payload; a longer one is an error
# Bytes of the payload of the first frame of an agent or of a status query; a longer one is an
# error. A HELLO has an address for each network interface. The HELLO of an agent that reconnects
# may be longer, because it has the roster.
FIRST_LIMIT = 1 << 14
# Seconds: the kernel detects a failed or unreachable host after about 15 + 3 * 5 seconds.
_PROBE_AFTER, _PROBE_EVERY, _PROBES = 15, 5, 3
LOST_AFTER = float(_PROBE_AFTER + _PROBE_EVERY * _PROBES)
_APART = 0.4  # seconds from the first check that a host seems lost to the check that confirms it
_QUEUE = struct.Struct("i")
_TCP_INFO = struct.Struct("8B13I")  # the beginning of Linux's tcp_info


class FrameKind(enum.IntEnum):
    """The kind of a frame: its first byte, a letter."""

    # From agent to launcher.
    #
    # {rank, host, pid, share, listens_at, inherits_at, again}; share: the cores for the rank, or
    # null; listens_at: the addresses at which the rank listens for others, or null; inherits_at:
    # the addresses at which this host would listen if it took over from the launcher, or ""; again:
    # null, or, to a launcher that has taken over, {started, line}: whether the rank has started,
    # and the last roster that it has received. LEAVING, JOINING and EXIT are then sent again.
    HELLO = ord("H")
    # Bytes that the rank wrote to stdout and to stderr.
    OUTPUT = ord("O")
    ERRORS = ord("E")
    # Text of its stderr that only files and -v show.
    HIDDEN_ERRORS = ord("F")
    # {follows}: the rank begins to leave; see rank_channel.
    LEAVING = ord("N")
    # In an elastic job: {ready: identity, trained}, {let_in: generation}, {joined: true},
    # {begun: results, trained}, {barrier: number} or {outside: for_good}; see rank_channel.Sender.
    JOINING = ord("J")
    # Empty: yes, to a STALL_QUERY.
    STALLED = ord("K")
    # A snapshot of the rank (hang/snapshot.py), or {}.
    SNAPSHOT = ord("V")
    # {pid, lasted}: a signal has stopped this process of the rank; with lasted, the process runs
    # again after so many seconds.
    STOPPED = ord("T")
    # A rank for which this one waits in step after step; see hang/slow_ranks.py.
    SLOW_RANK = ord("U")
    # {version} of the newest TAKEOVER_STATE.
    TAKEOVER_STATE_RECEIVED = ord("Z")
    # {code, ago, doing}, {signal, told, stopped, out_of_memory, ago, doing} or {error}: the last
    # frame; ago: seconds since the rank ended; doing: what the rank did, by its flight record.
    EXIT = ord("X")

    # From launcher to agent.
    #
    # Empty.
    WELCOME = ord("W")
    # {addresses, salt, elastic}: the addresses at which all ranks listen, and the salt of their
    # common token; without addresses the rank joins later. The rank may start.
    ENDPOINTS = ord("M")
    # {line}: the members of an elastic job; see launch/state/roster.py.
    ROSTER = ord("G")
    # {results, trained}, to joining ranks: the log of the calls before the training, or null, and
    # the number of trainings before; sent again with each training.
    REPLAY_LOG = ord("D")
    # {barriers}: for each joining rank the number of barriers that it may pass; see
    # launch/state/join_barriers.py.
    BARRIERS_PASSED = ord("C")
    # The host that takes over if the launcher's host fails, and the state for it, signed; see
    # launch/failover/replication.py.
    TAKEOVER_STATE = ord("Y")
    # {signal, group}: pass it to the rank.
    SIGNAL = ord("S")
    # {limit}: kill the rank if SIGSTOP has stopped it for so many seconds; sent repeatedly.
    KILL_IF_STOPPED = ord("L")
    # {limit}: has the rank waited so many seconds without progress?
    STALL_QUERY = ord("P")
    # Empty: asks for a SNAPSHOT of the rank.
    SNAPSHOT_REQUEST = ord("R")
    # Bytes for the rank's stdin; empty: its end.
    INPUT = ord("I")
    # Empty: the job is over, the agent may end. Also the end of the answer to a STATUS_QUERY.
    QUIT = ord("Q")

    # In both directions. Empty: the acknowledgment by the kernel of the other host is enough.
    HEARTBEAT = ord("B")

    # From a tool, or a rank, to launcher or rank. {}: the answer is a SNAPSHOT of each rank with a
    # flight record, then QUIT; see hang/status_query.py. A rank also answers {limit}: it sends
    # STALLED if a rank of its host has waited so many seconds without progress, then QUIT.
    STATUS_QUERY = ord("A")


_LETTERS = frozenset(FrameKind)


class WireError(Exception):
    """The other side does not follow the protocol."""


def frame(kind: FrameKind, payload: bytes = b"") -> bytes:
    """Returns the bytes of one frame; the payload has at most LIMIT bytes."""
    return _HEAD.pack(kind, len(payload)) + payload


def frame_json(kind: FrameKind, **fields: object) -> bytes:
    """Returns a frame whose payload is a JSON object."""
    return frame(kind, json.dumps(fields).encode())


def notice_lost_hosts(sock: socket.socket) -> None:
    """Makes the kernel probe the other host; reads fail if this host does not answer.

    A host counts as alive even if its process never reads, as with a launcher in the background.
    The kernel probes only while no data is in flight to the host; `has_lost_host` covers the other
    case.
    """
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _PROBE_AFTER)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _PROBE_EVERY)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES)


def has_lost_host(sock: socket.socket, after: float = LOST_AFTER) -> bool:
    """Whether the other host has not acknowledged sent data for so long that it counts as lost.

    Args:
        sock: the connection.
        after: the number of seconds without an acknowledgment.

    The kernel of a host acknowledges data even if no process reads them. TCP_USER_TIMEOUT would
    mistake a process that does not read for a lost host.
    """
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
        fields = _TCP_INFO.unpack(info)
    except (OSError, struct.error):
        return False  # the next read reports the error
    # If the link of this host is down, no data is in flight either: the kernel only sends probes.
    # It does so, too, if the other process does not read, but then the other host answers each.
    probes, unacknowledged, sent, answered = fields[3], fields[12], fields[17], fields[20]
    # `sent` and `answered` are milliseconds since the last data and the last acknowledgment. A host
    # that drops data because no process reads answers each retransmission, at growing intervals.
    is_silent = answered > 1000 * after and answered > sent
    return is_silent and (unacknowledged > 0 or probes > 1)


class Silence:
    """Decides whether the other host of a connection counts as lost: two checks must agree.

    Attributes:
        seems_lost: whether the last check found the host lost.
    """

    def __init__(self) -> None:
        self.seems_lost = False
        self._since = 0.0

    def look(self, sock: socket.socket, after: float, now: float) -> bool:
        """Checks the connection; returns whether the host counts as lost. Call it repeatedly.

        Args:
            sock: the connection.
            after: see `has_lost_host`.
            now: seconds of a steady clock.
        """
        before, self.seems_lost = self.seems_lost, has_lost_host(sock, after)
        if not before:
            self._since = now
        # Data that were sent a moment ago cannot have been acknowledged yet.
        return before and self.seems_lost and now >= self._since + _APART


def has_unacknowledged(sock: socket.socket) -> bool:
    """Whether the other host has not acknowledged all sent data yet."""
    try:
        waiting: int = _QUEUE.unpack(fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(_QUEUE.size)))[0]
    except OSError:
        return False  # the next read reports the error
    return waiting > 0


class Reader:
    """Cuts a stream into frames: ``feed`` takes bytes as they arrive, and returns whole frames.

    Args:
        first_limit: the largest number of bytes in the payload of the first frame.

    Attributes:
        has_begun: whether the first frame has arrived.
    """

    def __init__(self, first_limit: int = LIMIT) -> None:
        self._buffer = bytearray()
        self._limit = first_limit
        self.has_begun = False

    def feed(self, data: bytes) -> list[tuple[FrameKind, bytes]]:
        """Returns (kind, payload) of each frame that ``data`` completes.

        Raises:
            WireError: if the bytes are not frames.
        """
        self._buffer += data
        frames = []
        while len(self._buffer) >= _HEAD.size:
            letter, length = _HEAD.unpack_from(self._buffer)
            if length > self._limit or letter not in _LETTERS:
                raise WireError(f"not a frame: {bytes(self._buffer[:16])!r}")
            end = _HEAD.size + length
            if len(self._buffer) < end:
                break
            frames.append((FrameKind(letter), bytes(self._buffer[_HEAD.size : end])))
            self._limit, self.has_begun = LIMIT, True
            del self._buffer[:end]
        return frames


def read_json(payload: bytes) -> dict[str, Any]:
    """Returns the JSON object of a payload; raises WireError if the payload is not one."""
    try:
        fields = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise WireError(f"not JSON: {payload[:80]!r}") from error
    if not isinstance(fields, dict):
        raise WireError(f"not a JSON object: {payload[:80]!r}")
    return fields
