"""An agent's connection to the launcher, and to its successor after a takeover."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import time
from collections.abc import Mapping

from tfhvd.launch.failover import successor
from tfhvd.network import address, connector, ports
from tfhvd.protocol import endpoints, messages
from tfhvd.protocol.messages import FrameKind
from tfhvd.protocol.variables import ADDRESS, MAJORITY, STANDBY, TOKEN

_TIMES, _PAUSE = 5, 0.2  # how often the launcher may be killed while we connect; seconds
_TO_CONNECT = 5.0  # seconds
_TO_CONNECT_SOON = 1.0  # seconds, if a successor may take over
# If a successor may take over: seconds without contact until the launcher's host has failed, fewer
# than in liveness.py because a process must start first; and seconds between two heartbeats.
_CUT_OFF, _BEAT = 1.7, 0.5
_TO_BEGIN = 8.0  # seconds until a successor listens; its agent may notice the failure later
_UNREACHABLE = (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN)


class Launcher:
    """A connection to the launcher, with one user: the agent.

    Args:
        addresses: the launcher's addresses, as ``host:port,...``; the first that answers counts.
        token: the token of the job.
        rank: the agent's rank.
        share: the number of cores that the rank takes, if it takes a share.
        listens_at: the addresses at which the rank listens, if ranks connect over TCP.
        may_have_another: whether another process may take over from the launcher.
        successors: the successors if the launcher's host fails; None: the job then ends.

    Attributes:
        sock: the connection. REQUIRES: `connect` has returned.
        may_have_another: as given.
    """

    def __init__(
        self,
        addresses: str,
        token: str,
        rank: int,
        share: int | None,
        listens_at: str | None,
        may_have_another: bool,
        successors: successor.Successor | None = None,
    ) -> None:
        self.sock: socket.socket
        self.may_have_another = may_have_another
        self._at = list(address.pairs(addresses))
        self._token = token
        self._hello = {"rank": rank, "host": socket.gethostname(), "pid": os.getpid()}
        self._hello |= {"share": share, "listens_at": listens_at}
        self._successor = successors
        self._beat_at = 0.0
        self._silence = messages.Silence()
        self._reader = messages.Reader()

    def connect(self, again: dict[str, object] | None = None) -> None:
        """Connect to the launcher, or to its successor.

        Args:
            again: the agent's state for a launcher that has taken over; see FrameKind.HELLO.

        Raises:
            OSError: if no address answers; with the reason of each.
        """
        errors: dict[tuple[str, int], Exception] = {}
        host_is_lost = again is not None and self._silence.seems_lost
        self._silence = messages.Silence()
        for number in range(0 if host_is_lost else 1 if again is None else _TIMES):
            if number:
                time.sleep(_PAUSE)
            if self._is_welcomed(self._at, again, errors):
                return
            if all(isinstance(error, ConnectionRefusedError) for error in errors.values()):
                break  # no process listens there
            if self._successor is not None and all(map(_says_unreachable, errors.values())):
                host_is_lost = again is not None
                break
        if self._successor is not None and again is not None:
            for at in self._successor.in_order(host_is_lost=host_is_lost):
                if self._is_welcomed_soon(at, again, errors):
                    return
        raise OSError("; ".join(f"{host}:{port}: {why}" for (host, port), why in errors.items()))

    def _is_welcomed(
        self,
        addresses: list[tuple[str, int]],
        again: dict[str, object] | None,
        errors: dict[tuple[str, int], Exception],
    ) -> bool:
        """Return whether one of the addresses answers; note the errors of the others."""
        inherits_at = "" if self._successor is None else self._successor.addresses
        hello = messages.frame_json(
            FrameKind.HELLO, **self._hello, inherits_at=inherits_at, again=again
        )
        limit = _TO_CONNECT if self._successor is None or again is None else _TO_CONNECT_SOON
        for at in addresses:
            try:
                self.sock = _welcomed(at, self._token, hello, limit)
            except (OSError, messages.WireError) as error:
                errors[at] = error
            else:
                self._at, self._reader = [at], messages.Reader()
                return True
        return False

    def _is_welcomed_soon(
        self,
        addresses: list[tuple[str, int]],
        again: dict[str, object],
        errors: dict[tuple[str, int], Exception],
    ) -> bool:
        """Return whether an address answers within the time that a successor takes to start."""
        give_up = time.monotonic() + _TO_BEGIN
        while not self._is_welcomed(addresses, again, errors):
            # The first address is the one at which the agent has reached the launcher.
            is_there = isinstance(errors[addresses[0]], ConnectionRefusedError)
            if time.monotonic() > give_up or not is_there:
                return False
            time.sleep(_PAUSE / 4)
        return True

    def has_lost_host(self, now: float) -> bool:
        """Return whether the launcher's host has failed or is cut off; call it repeatedly."""
        limit = messages.LOST_AFTER if self._successor is None else _CUT_OFF
        return self._silence.look(self.sock, limit, now)

    def beat(self, now: float) -> None:
        """Send a heartbeat if one is due: TCP's acknowledgment shows that the host is alive."""
        if self._successor is None or now < self._beat_at:
            return
        self._beat_at = now + _BEAT
        if not messages.has_unacknowledged(self.sock):  # else its acknowledgment shows it
            with contextlib.suppress(OSError):  # the next read reports it
                self.sock.sendall(messages.frame(FrameKind.HEARTBEAT))

    def take_state(self, payload: bytes) -> bytes:
        """Keep a TAKEOVER_STATE; return the answer to it."""
        assert self._successor is not None
        return self._successor.take(payload)

    @property
    def started(self) -> int:
        """The process id of the successor that this agent has started; 0: none."""
        return 0 if self._successor is None else self._successor.process

    def close(self) -> None:
        """Close the connection, and wait for the end of a successor on this host."""
        self.sock.close()
        if self._successor is not None:
            self._successor.wait()

    def receive(self) -> list[tuple[FrameKind, bytes]] | None:
        """Return the frames that have arrived, when `sock` is readable; None at their end."""
        try:
            data = self.sock.recv(1 << 16, socket.MSG_DONTWAIT)
            return self._reader.feed(data) if data else None
        except BlockingIOError:  # only a part of an encrypted record
            return []
        except (OSError, messages.WireError):
            return None


def named_in(
    environ: Mapping[str, str], rank: int, share: int | None, listens_at: str | None
) -> Launcher:
    """Return the launcher that an agent's environment names.

    Args:
        environ: the agent's environment.
        rank: see Launcher.
        share: see Launcher.
        listens_at: see Launcher.
    """
    addresses = environ[ADDRESS]
    outlives = None
    if MAJORITY in environ:
        towards = [host for host, _ in address.pairs(addresses)]
        nics, of = environ.get(endpoints.TCP, ""), ports.of(environ)
        outlives = successor.Successor(rank, nics, towards, of)
    token, may_have_another = environ.get(TOKEN, ""), STANDBY in environ
    return Launcher(addresses, token, rank, share, listens_at, may_have_another, outlives)


def _says_unreachable(error: Exception) -> bool:
    return isinstance(error, TimeoutError) or (
        isinstance(error, OSError) and error.errno in _UNREACHABLE
    )


def _welcomed(at: tuple[str, int], token: str, hello: bytes, limit: float) -> socket.socket:
    sock = connector.connect(at, token, messages.ABOUT, to_connect=limit, to_prove=_TO_CONNECT).sock
    sock.settimeout(_TO_CONNECT)
    try:
        messages.notice_lost_hosts(sock)
        sock.sendall(hello)
        frames = messages.Reader().feed(_read_exactly(sock, len(messages.frame(FrameKind.WELCOME))))
        if [kind for kind, _ in frames] != [FrameKind.WELCOME]:
            raise messages.WireError("no welcome")
        sock.settimeout(None)
    except (OSError, messages.WireError):
        sock.close()
        raise
    return sock


def _read_exactly(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = sock.recv(count - len(data))
        if not more:
            raise OSError("the other side closed the connection")
        data += more
    return data
