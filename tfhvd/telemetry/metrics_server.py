"""Answers Prometheus. Whoever else reaches the port costs little: see network/acceptor.py.

The server of prometheus_client gives each connection a thread, for as long as the other side likes.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tfhvd.network.acceptor import Acceptor

_LONGEST = 8192  # bytes of a request
_TO_TAKE = 1.0  # seconds that the other side may take for what has no room there
_END = b"\r\n\r\n"

# As `prometheus_client.make_wsgi_app` makes one.
App = Callable[[Mapping[str, str], Callable[[str, Any], object]], Iterable[bytes]]


class _Request:
    """A stranger whose request lets it in once all of it has come."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._came = b""

    def advance(self) -> bytes:
        """As of any stranger."""
        data = self.sock.recv(_LONGEST - len(self._came))
        self._came += data
        if not data or len(self._came) == _LONGEST:
            raise ConnectionError("there is no request")
        return self._came if _END in self._came else b""


class _Requests(Acceptor):
    def _meet(self, sock: socket.socket) -> _Request:
        return _Request(sock)


class MetricsServer:
    """Serves from a thread of its own, until closed.

    Args:
        address: where to listen.
        port: likewise.
        app: what answers.

    Attributes:
        port: where it listens.

    Raises:
        OSError: nothing can listen there.
    """

    def __init__(self, address: str, port: int, app: App) -> None:
        self._app = app
        found = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
        family = found[0]
        both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
        listener = socket.create_server(
            (address, port), family=family, backlog=64, dualstack_ipv6=both
        )
        self._requests = _Requests(listener)
        self.port = self._requests.port
        self._thread = threading.Thread(target=self._serve, name="tfhvd metrics port", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends it."""
        self._requests.stop()
        self._thread.join()

    def _serve(self) -> None:
        for guest in self._requests.guests():
            # Whoever breaks off, or asks what cannot be read, gets no answer.
            with contextlib.suppress(Exception), guest.sock:
                answer = _answer(self._app, guest.key)
                # The kernel keeps what the other side has not read yet: this thread need not wait.
                guest.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, len(answer))
                guest.sock.settimeout(_TO_TAKE)
                guest.sock.sendall(answer)


def _answer(app: App, request: bytes) -> bytes:
    """The answer to a request.

    Raises:
        ValueError: it is none of HTTP's.
    """
    first, *lines = request.partition(_END)[0].decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ")
    path, _, query = target.partition("?")
    environ = {"REQUEST_METHOD": method, "PATH_INFO": path, "QUERY_STRING": query}
    for line in lines:
        name, _, value = line.partition(":")
        environ[f"HTTP_{name.strip().upper().replace('-', '_')}"] = value.strip()
    head: list[str] = []

    def start(status: str, headers: Iterable[tuple[str, str]]) -> None:
        head.append(f"HTTP/1.1 {status}")
        head.extend(f"{name}: {value}" for name, value in headers)

    body = b"".join(app(environ, start))
    head += [f"Content-Length: {len(body)}", "Connection: close"]
    return "\r\n".join(head).encode("latin-1") + _END + body
