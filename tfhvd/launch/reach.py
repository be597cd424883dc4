"""How a worker reaches the launcher, and another one that takes its place."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import time
from collections.abc import Mapping

from tfhvd.launch import address, endpoints, handshake, heirs, wire
from tfhvd.launch.environment import ADDRESS, MAJORITY, STANDBY, TOKEN

_TIMES, _PAUSE = 5, 0.2  # how often the launcher's process may end while it takes us in; seconds
_TO_CONNECT = 5.0  # seconds
_TO_CONNECT_SOON = 1.0  # the same where others may take the launcher's place
# Seconds until its host is lost then: fewer than the launcher has (rounds.py), for a process must
# start; and between two signs of life.
_CUT_OFF, _BEAT = 1.7, 0.5
_TO_BEGIN = 8.0  # seconds until one that takes its place listens, whose worker may notice later
_UNREACHABLE = (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN)


class Launcher:
    """A connection to the launcher: a worker's, who is its one user.

    Args:
        addresses: where it is: ``host:port,...``, of which the first counts that welcomes us.
        token: the job's.
        rank: our rank.
        share: how many cores the rank takes, if it takes a share.
        listens_at: where it meets others, if it does so over TCP.
        may_have_another: whether another process may take the place of the one that is reached.
        heirs: who takes the launcher's place where its host is lost; None: nobody.

    Attributes:
        sock: the connection. REQUIRES: `connect` has come to its end.
        may_have_another: the same.
    """

    def __init__(
        self,
        addresses: str,
        token: str,
        rank: int,
        share: int | None,
        listens_at: str | None,
        may_have_another: bool,
        heirs: heirs.Heirs | None = None,
    ) -> None:
        self.sock: socket.socket
        self.may_have_another = may_have_another
        self._at = list(address.pairs(addresses))
        self._token = token
        self._hello = {"rank": rank, "host": socket.gethostname(), "pid": os.getpid()}
        self._hello |= {"share": share, "listens_at": listens_at}
        self._heirs = heirs
        self._beat_at = 0.0
        self._silence = wire.Silence()
        self._reader = wire.Reader()

    def connect(self, again: dict[str, object] | None = None) -> None:
        """Reaches it.

        Args:
            again: what to say to one that takes the place of another one; see wire.

        Raises:
            OSError: with every address's reason.
        """
        errors: dict[tuple[str, int], Exception] = {}
        host_is_lost = again is not None and self._silence.seems_lost
        self._silence = wire.Silence()
        for number in range(0 if host_is_lost else 1 if again is None else _TIMES):
            if number:
                time.sleep(_PAUSE)
            if self._is_welcomed(self._at, again, errors):
                return
            if all(isinstance(error, ConnectionRefusedError) for error in errors.values()):
                break  # nobody listens there
            if self._heirs is not None and all(map(_says_unreachable, errors.values())):
                host_is_lost = again is not None
                break
        if self._heirs is not None and again is not None:
            for at in self._heirs.in_order(host_is_lost=host_is_lost):
                if self._is_welcomed_soon(at, again, errors):
                    return
        raise OSError("; ".join(f"{host}:{port}: {why}" for (host, port), why in errors.items()))

    def _is_welcomed(
        self,
        addresses: list[tuple[str, int]],
        again: dict[str, object] | None,
        errors: dict[tuple[str, int], Exception],
    ) -> bool:
        """Whether one of these takes us in; takes note of the errors of the others."""
        inherits_at = "" if self._heirs is None else self._heirs.addresses
        hello = wire.frame_json(wire.HELLO, **self._hello, inherits_at=inherits_at, again=again)
        limit = _TO_CONNECT if self._heirs is None or again is None else _TO_CONNECT_SOON
        for at in addresses:
            try:
                self.sock = _welcomed(at, self._token, hello, limit)
            except (OSError, wire.WireError) as error:
                errors[at] = error
            else:
                self._at, self._reader = [at], wire.Reader()
                return True
        return False

    def _is_welcomed_soon(
        self,
        addresses: list[tuple[str, int]],
        again: dict[str, object],
        errors: dict[tuple[str, int], Exception],
    ) -> bool:
        """The same, of one that may not listen yet."""
        give_up = time.monotonic() + _TO_BEGIN
        while not self._is_welcomed(addresses, again, errors):
            # The first address is the one by which the launcher was reached.
            is_there = isinstance(errors[addresses[0]], ConnectionRefusedError)
            if time.monotonic() > give_up or not is_there:
                return False
            time.sleep(_PAUSE / 4)
        return True

    def has_lost_host(self, now: float) -> bool:
        """Whether its host is lost, or cut off from this one; to be asked again and again."""
        limit = wire.LOST_AFTER if self._heirs is None else _CUT_OFF
        return self._silence.look(self.sock, limit, now)

    def beat(self, now: float) -> None:
        """Says that we are there, if it is time: its host's answer tells that the host is, too."""
        if self._heirs is None or now < self._beat_at:
            return
        self._beat_at = now + _BEAT
        if not wire.has_unacknowledged(self.sock):  # else that tells as much
            with contextlib.suppress(OSError):  # whoever reads will see
                self.sock.sendall(wire.frame(wire.BEAT))

    def take_will(self, payload: bytes) -> bytes:
        """Takes who is to take its place, where its host is lost; returns the answer."""
        assert self._heirs is not None
        return self._heirs.take(payload)

    @property
    def heir(self) -> int:
        """The process that was started here to take its place; 0: none."""
        return 0 if self._heirs is None else self._heirs.process

    def close(self) -> None:
        """Closes the connection, and waits for the end of that process."""
        self.sock.close()
        if self._heirs is not None:
            self._heirs.wait()

    def receive(self) -> list[tuple[bytes, bytes]] | None:
        """Frames that it has sent, where `sock` is readable; None once there will be no more."""
        try:
            data = self.sock.recv(4096)
            return self._reader.feed(data) if data else None
        except (OSError, wire.WireError):
            return None


def named_in(
    environ: Mapping[str, str], rank: int, share: int | None, listens_at: str | None
) -> Launcher:
    """The launcher that a worker's environment names.

    Args:
        environ: the worker's.
        rank: see Launcher.
        share: likewise.
        listens_at: likewise.
    """
    addresses = environ[ADDRESS]
    outlives = None
    if MAJORITY in environ:
        towards = [host for host, _ in address.pairs(addresses)]
        outlives = heirs.Heirs(rank, environ.get(endpoints.TCP, ""), towards)
    token, may_have_another = environ.get(TOKEN, ""), STANDBY in environ
    return Launcher(addresses, token, rank, share, listens_at, may_have_another, outlives)


def _says_unreachable(error: Exception) -> bool:
    return isinstance(error, TimeoutError) or (
        isinstance(error, OSError) and error.errno in _UNREACHABLE
    )


def _welcomed(at: tuple[str, int], token: str, hello: bytes, limit: float) -> socket.socket:
    sock = socket.create_connection(at, timeout=limit)
    sock.settimeout(_TO_CONNECT)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        wire.notice_lost_hosts(sock)
        handshake.prove(sock, token, wire.ABOUT, _TO_CONNECT)
        sock.sendall(hello)
        frames = wire.Reader().feed(_read_exactly(sock, len(wire.frame(wire.WELCOME))))
        if [kind for kind, _ in frames] != [wire.WELCOME]:
            raise wire.WireError("no welcome")
        sock.settimeout(None)
    except (OSError, wire.WireError):
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
