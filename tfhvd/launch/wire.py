"""What launcher and worker say to each other over one TCP connection per rank.

Both have proved before that they know the job's token: see handshake. A frame is one byte of kind,
four bytes of length (big endian) and the payload:

    worker -> launcher   H hello   JSON {rank, host, pid, share, listens_at, inherits_at, again};
                                   share: the cores that the rank takes, or null;
                                   listens_at: where its rank will listen for the others, or null;
                                   inherits_at: where one would listen that takes the launcher's
                                   place from this host, or ""; again: null, or, to a
                                   launcher that takes the place of another one, JSON {started,
                                   line}: has the rank been started, and the roster that it was
                                   told last. N, J and X are then sent again
                         O output, E error output: bytes as the rank wrote them
                         N notice  JSON {follows}: the rank begins to leave the job; see notice
                         J joining JSON {ready: identity, trained}, {let_in: generation}, {joined:
                                   true}, {begun: results, trained}, {barrier: number} or {outside:
                                   for_good}: of an elastic job; see notice.Sender
                         K stuck   (empty): the answer to a probe
                         V view    JSON of what is seen of the rank (watch/snapshot.py), or {}
                         T halted  JSON {pid, lasted}: a signal has stopped this process of the
                                   rank; lasted: or the rank goes on, after so many seconds
                         Z knows   JSON {version}: of a will that has come
                         B beat    (empty): the same as the launcher's
                         X exit    JSON {code, ago, doing} or {signal, told, stopped, out_of_memory,
                                   ago, doing} or {error}; the rank's last frame; ago: seconds since
                                   it ended; doing: what, by its flight record
    who asks -> launcher A ask     JSON {}: what is seen of all ranks? The answer is V for each
                or rank            rank that has a record, then Q; see launch/inquiry.py. To a rank
                                   also JSON {limit}: has one on its host waited so many
                                   seconds in vain? The answer is K if so, then Q
    launcher -> worker   W welcome (empty)
                         M where   JSON {addresses, salt, elastic}: where all ranks listen, and
                                   from what they derive the token of each other's; no
                                   addresses: the rank comes later, and is let in; the rank may
                                   be started;
                                   elastic: ranks may be lost, and then there is
                         G members JSON {line}: who takes part still; see launch/members.py
                         D begun   JSON {results, trained}: to those that come later, what the
                                   others have got alike before they trained, or null, and the
                                   number of trainings before that; again with each training
                         C passed  JSON {barriers}: the barriers from which those that come later
                                   may go on, by rank; see launch/barriers.py
                         Y will    see launch/wills.py: who takes the launcher's place if its host
                                   is lost, and what that one needs, which is signed
                         B beat    (empty): nothing; that its host acknowledges it says enough
                         S signal  JSON {signal, group}: pass it on to the rank
                         L look    JSON {limit}: kill the rank if it has been stopped for so many
                                   seconds, as by SIGSTOP; sent again and again
                         P probe   JSON {limit}: has the rank waited so many seconds in vain?
                         R report  (empty): what is seen of the rank now?
                         I input   bytes for the rank's stdin; none: its end
                         Q quit    (empty): the job is over, the worker may end
"""

from __future__ import annotations

import fcntl
import json
import socket
import struct
import termios
from typing import Any

HELLO, OUTPUT, ERRORS, NOTICE, EXIT, STUCK, VIEW = b"H", b"O", b"E", b"N", b"X", b"K", b"V"
ASK, JOINING, HALTED = b"A", b"J", b"T"
WELCOME, SIGNAL, LOOK, INPUT, QUIT, PROBE, REPORT = b"W", b"S", b"L", b"I", b"Q", b"P", b"R"
ENDPOINTS, MEMBERS, BEGUN, PASSED, BEAT = b"M", b"G", b"D", b"C", b"B"
WILL, KNOWS = b"Y", b"Z"
_KINDS = {
    *(HELLO, OUTPUT, ERRORS, NOTICE, EXIT, STUCK, VIEW, ASK, JOINING, HALTED),
    *(WELCOME, SIGNAL, LOOK, INPUT, QUIT, PROBE, REPORT, ENDPOINTS, MEMBERS, BEGUN, PASSED, BEAT),
    *(WILL, KNOWS),
}

ABOUT = "launcher"  # what listens, as handshake calls it

_HEAD = struct.Struct("!cI")
LIMIT = 1 << 20  # A longer payload is no frame of ours.
# Seconds: a host that has died, or is cut off, is noticed after about 15 + 3 * 5 of them.
_PROBE_AFTER, _PROBE_EVERY, _PROBES = 15, 5, 3
LOST_AFTER = float(_PROBE_AFTER + _PROBE_EVERY * _PROBES)
_APART = 0.4  # seconds from a look at which a host seems lost to one that makes sure
_QUEUE = struct.Struct("i")
_TCP_INFO = struct.Struct("8B13I")  # the beginning of Linux's tcp_info


class WireError(Exception):
    """The other side does not speak this language."""


def frame(kind: bytes, payload: bytes = b"") -> bytes:
    """The bytes of one frame; the payload is at most LIMIT bytes."""
    return _HEAD.pack(kind, len(payload)) + payload


def frame_json(kind: bytes, **fields: object) -> bytes:
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
    """Cuts a stream into frames: ``feed`` bytes as they come, get whole frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """Returns the (kind, payload) that ``data`` completes; raises WireError on nonsense."""
        self._buffer += data
        frames = []
        while len(self._buffer) >= _HEAD.size:
            kind, length = _HEAD.unpack_from(self._buffer)
            if length > LIMIT or kind not in _KINDS:
                raise WireError(f"not a frame: {bytes(self._buffer[:16])!r}")
            end = _HEAD.size + length
            if len(self._buffer) < end:
                break
            frames.append((kind, bytes(self._buffer[_HEAD.size : end])))
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
