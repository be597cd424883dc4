"""What launcher, agents and ranks say to each other over one TCP connection per rank.

Both sides have proved before that they know the job's token; see network.handshake. A frame is one
byte of kind, four bytes of length (big endian) and the payload: JSON, if the comment gives fields.
"""

from __future__ import annotations

import enum
import fcntl
import json
import socket
import struct
import termios
from typing import Any

ABOUT = "launcher"  # what listens, as handshake calls it

_HEAD = struct.Struct("!BI")
LIMIT = 1 << 20  # A longer payload is no frame of ours.
# Nor is a longer one the first of an agent, or of who asks: a host with many network interfaces has
# an address of each. What an agent says again to another launcher, the roster too, is longer.
FIRST_LIMIT = 1 << 14
# Seconds: a host that has died, or is cut off, is noticed after about 15 + 3 * 5 of them.
_PROBE_AFTER, _PROBE_EVERY, _PROBES = 15, 5, 3
LOST_AFTER = float(_PROBE_AFTER + _PROBE_EVERY * _PROBES)
_APART = 0.4  # seconds from a look at which a host seems lost to one that makes sure
_QUEUE = struct.Struct("i")
_TCP_INFO = struct.Struct("8B13I")  # the beginning of Linux's tcp_info


class FrameKind(enum.IntEnum):
    """What a frame is: the letter that it begins with."""

    # From agent to launcher.
    #
    # {rank, host, pid, share, listens_at, inherits_at, again}; share: the cores that the rank
    # takes, or null; listens_at: where the rank listens for others, or null; inherits_at: where
    # this host would listen if it took over from the launcher, or ""; again: null, or, to a
    # launcher that has taken over, {started, line}: whether the rank has started, and the last
    # roster that it was told. LEAVING, JOINING and EXIT are then sent again.
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
    # What is seen of the rank (hang/snapshot.py), or {}.
    SNAPSHOT = ord("V")
    # {pid, lasted}: a signal has stopped this process of the rank; lasted: it runs again, after so
    # many seconds.
    STOPPED = ord("T")
    # A rank for which this one waits in step after step; see hang/slow_ranks.py.
    SLOW_RANK = ord("U")
    # {version} of the newest TAKEOVER_STATE.
    TAKEOVER_STATE_RECEIVED = ord("Z")
    # {code, ago, doing}, {signal, told, stopped, out_of_memory, ago, doing} or {error}: the last
    # frame; ago: seconds since the rank ended; doing: what, by its flight record.
    EXIT = ord("X")

    # From launcher to agent.
    #
    # Empty.
    WELCOME = ord("W")
    # {addresses, salt, elastic}: where all ranks listen, and from what they derive the token among
    # themselves; without addresses the rank joins later. The rank may start.
    ENDPOINTS = ord("M")
    # {line}: the members of an elastic job; see launch/state/roster.py.
    ROSTER = ord("G")
    # {results, trained}, to joining ranks: what the others did before they trained, or null, and
    # the number of trainings before; sent again with each training.
    REPLAY_LOG = ord("D")
    # {barriers}: from which joining ranks may continue, by rank; see launch/state/join_barriers.py.
    BARRIERS_PASSED = ord("C")
    # Who takes over if the launcher's host fails, and the state for it, signed; see
    # launch/failover/replication.py.
    TAKEOVER_STATE = ord("Y")
    # {signal, group}: pass it to the rank.
    SIGNAL = ord("S")
    # {limit}: kill the rank if SIGSTOP has stopped it for so many seconds; sent repeatedly.
    KILL_IF_STOPPED = ord("L")
    # {limit}: has the rank waited so many seconds without progress?
    STALL_QUERY = ord("P")
    # Empty: what is seen of the rank now?
    SNAPSHOT_REQUEST = ord("R")
    # Bytes for the rank's stdin; empty: its end.
    INPUT = ord("I")
    # Empty: the job is over, the agent may end. Also the end of the answer to a STATUS_QUERY.
    QUIT = ord("Q")

    # In both directions. Empty: that the kernel of the other host acknowledges it says enough.
    HEARTBEAT = ord("B")

    # From a tool, or a rank, to launcher or rank. {}: the answer is a SNAPSHOT of each rank with a
    # flight record, then QUIT; see hang/status_query.py. A rank also answers {limit}: it sends
    # STALLED if a rank of its host has waited so many seconds without progress, then QUIT.
    STATUS_QUERY = ord("A")


_LETTERS = frozenset(FrameKind)


class WireError(Exception):
    """The other side does not speak this language."""


def frame(kind: FrameKind, payload: bytes = b"") -> bytes:
    """The bytes of one frame; the payload is at most LIMIT bytes."""
    return _HEAD.pack(kind, len(payload)) + payload


def frame_json(kind: FrameKind, **fields: object) -> bytes:
    """A frame whose payload is a JSON object."""
    return frame(kind, json.dumps(fields).encode())


def notice_lost_hosts(sock: socket.socket) -> None:
    """Has the kernel ask whether the other host still lives, so that reading fails if not.

    A process that does not read, such as a launcher in the background, is no lost host: there is no
    limit for that. The kernel asks only while nothing is under way to that host: for the rest see
    `has_lost_host`.
    """
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _PROBE_AFTER)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _PROBE_EVERY)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES)


def has_lost_host(sock: socket.socket, after: float = LOST_AFTER) -> bool:
    """Whether what was sent has not been acknowledged for so long that the other host is lost.

    Args:
        sock: the connection.
        after: for how many seconds.

    The kernel of a host acknowledges also what no process there reads. TCP_USER_TIMEOUT would take
    a process that does not read for a lost host.
    """
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
        fields = _TCP_INFO.unpack(info)
    except (OSError, struct.error):
        return False  # whoever reads from it will see
    # Where this host's own link is down nothing is under way either: the kernel only tries. It does
    # so, too, where a process does not read, but once each time that the other host answers.
    probes, unacknowledged, sent, answered = fields[3], fields[12], fields[17], fields[20]
    # Milliseconds since then. A host that has dropped what no process reads answers whenever it is
    # sent that again, which is ever more seldom.
    is_silent = answered > 1000 * after and answered > sent
    return is_silent and (unacknowledged > 0 or probes > 1)


class Silence:
    """Whether the other host of a connection is lost: it is where two looks, apart, both say so.

    Attributes:
        seems_lost: whether the last look did.
    """

    def __init__(self) -> None:
        self.seems_lost = False
        self._since = 0.0

    def look(self, sock: socket.socket, after: float, now: float) -> bool:
        """Looks; returns whether the host is lost. To be called again and again.

        Args:
            sock: the connection.
            after: see `has_lost_host`.
            now: seconds of a steady clock.
        """
        before, self.seems_lost = self.seems_lost, has_lost_host(sock, after)
        if not before:
            self._since = now
        # What was sent a moment ago cannot have been acknowledged yet.
        return before and self.seems_lost and now >= self._since + _APART


def has_unacknowledged(sock: socket.socket) -> bool:
    """Whether anything that was sent has not been acknowledged yet."""
    try:
        waiting: int = _QUEUE.unpack(fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(_QUEUE.size)))[0]
    except OSError:
        return False  # whoever reads from it will see
    return waiting > 0


class Reader:
    """Cuts a stream into frames: ``feed`` bytes as they come, get whole frames.

    Args:
        first_limit: the most bytes that the payload of the first frame has.

    Attributes:
        has_begun: whether the first frame has come.
    """

    def __init__(self, first_limit: int = LIMIT) -> None:
        self._buffer = bytearray()
        self._limit = first_limit
        self.has_begun = False

    def feed(self, data: bytes) -> list[tuple[FrameKind, bytes]]:
        """Returns the (kind, payload) that ``data`` completes; raises WireError on nonsense."""
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
    """The JSON object of a payload; raises WireError where it is none."""
    try:
        fields = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise WireError(f"not JSON: {payload[:80]!r}") from error
    if not isinstance(fields, dict):
        raise WireError(f"not a JSON object: {payload[:80]!r}")
    return fields
