"""MetricsServer: answers Prometheus; other clients cost little: see network/acceptor.py.

The server of prometheus_client would give each connection a thread, which the client could hold for
any time.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tfhvd.network.acceptor import Acceptor

_LONGEST = 8192  # bytes of a request
_TO_TAKE = 1.0  # seconds for the client to read the part of an answer that no buffer holds
_END = b"\r\n\r\n"

# The type of the result of `prometheus_client.make_wsgi_app`.
App = Callable[[Mapping[str, str], Callable[[str, Any], object]], Iterable[bytes]]


class _Request:
    """A stranger, which becomes a guest when its whole request has arrived."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._came = b""

    def advance(self) -> bytes:
        """Reads a part of the request; returns the request when it is complete, else b""."""
        data = self.sock.recv(_LONGEST - len(self._came))
        self._came += data
        if not data or len(self._came) == _LONGEST:
            raise ConnectionError("there is no request")
        return self._came if _END in self._came else b""


class _Requests(Acceptor):
    def _meet(self, sock: socket.socket) -> _Request:
        return _Request(sock)


class MetricsServer:
    """Serves metrics from a separate thread, until closed.

    Args:
        address: the address on which to listen.
        port: the port on which to listen.
        app: the application that answers requests.

    Attributes:
        port: the port on which it listens.

    Raises:
        OSError: if it cannot listen on this address and port.
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
        """Ends the server."""
        self._requests.stop()
        self._thread.join()

    def _serve(self) -> None:
        for guest in self._requests.guests():
            # A client that disconnects, or sends an unreadable request, gets no answer.
            with contextlib.suppress(Exception), guest.sock:
                answer = _answer(self._app, guest.key)
                # The kernel then takes the whole answer, and this thread need not wait.
                guest.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, len(answer))
                guest.sock.settimeout(_TO_TAKE)
                guest.sock.sendall(answer)


def _answer(app: App, request: bytes) -> bytes:
    """Returns the answer to a request.

    Raises:
        ValueError: if the request is not HTTP.
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
