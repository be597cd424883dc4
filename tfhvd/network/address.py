"""Listening sockets, and the addresses at which other hosts reach them."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import socket
import struct
from collections.abc import Iterable

from tfhvd.network import ports

_SIOCGIFADDR = 0x8915

BACKLOG = 1024  # connections that wait at a listening socket


def listen(*, remote: bool, of: range = ports.ANY) -> socket.socket:
    """Returns a listening socket on a free port: on every network, or (not remote) on loopback.

    Args:
        remote: whether other hosts must reach it.
        of: the ports from which to choose if `remote`.

    Raises:
        ports.PortsTakenError: if none of these ports is free.
    """
    listener = reserve(remote=remote, of=of)
    listener.listen(BACKLOG)
    return listener


def reserve(*, remote: bool, of: range = ports.ANY) -> socket.socket:
    """Returns a socket as `listen` does, which does not listen yet, so that no peer can connect."""
    if not remote:
        return _bound(socket.AF_INET, "127.0.0.1", 0)
    return ports.bound(_bound_everywhere, of)


def _bound_everywhere(port: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        try:
            return _bound(socket.AF_INET6, "", port)
        except OSError as error:  # such as in a container without IPv6
            if error.errno == errno.EADDRINUSE:
                raise
    return _bound(socket.AF_INET, "", port)


def _bound(family: socket.AddressFamily, host: str, port: int) -> socket.socket:
    sock = socket.socket(family)
    try:
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.bind((host, port))
    except OSError:
        sock.close()
        raise
    return sock


def detect_loss(sock: socket.socket) -> None:
    """Makes a connection fail within a minute after the other machine has failed."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30)  # seconds
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)


def addresses(
    port: int, *, remote: bool, hosts: Iterable[str] = (), nics: Iterable[str] = ()
) -> str:
    """Returns ``host:port,...`` in the order in which agents should try the addresses.

    Args:
        port: the port of the listener.
        remote: whether agents run on other hosts.
        hosts: the known names of these hosts; our addresses on the routes to them come first.
        nics: the only network interfaces to use; empty for all.
    """
    if not remote:
        return f"127.0.0.1:{port}"
    chosen = set(nics)
    found: list[str | None]
    every = [_of_interface(name) for _, name in socket.if_nameindex() if name != "lo"]
    if chosen:
        found = [_of_interface(name) for name in sorted(chosen)]
    else:
        found = [*(name for host in hosts for name in _towards(host)), *every]
    names = dict.fromkeys(name for name in found if name and not name.startswith("127."))
    # The last address is for the agents on this host.
    return ",".join(f"{name}:{port}" for name in [*names, "127.0.0.1"])


def for_others(addresses: str) -> str:
    """Returns the addresses in ``host:port,...`` for other hosts; all, if there are none."""
    found = [each for each in addresses.split(",") if not each.startswith("127.")]
    return ",".join(found) or addresses


def pairs(addresses: str) -> list[tuple[str, int]]:
    """Returns host and port of each address in ``host:port,...``.

    Raises:
        ValueError: if a port is not a number.

    Example: ``pairs("::1:80,n1:81") == [("::1", 80), ("n1", 81)]``
    """
    parts = (each.rpartition(":") for each in addresses.split(","))
    return [(host, int(port)) for host, _, port in parts]


def own() -> set[str]:
    """Returns this machine's IPv4 addresses, and the addresses of its name, which may be IPv6."""
    found = {_of_interface(name) for _, name in socket.if_nameindex()}
    return {name for name in found if name} | set(_towards(socket.gethostname()))


def _towards(host: str) -> list[str]:
    """Returns our addresses on the routes to a host; sends nothing."""
    found = []
    try:
        targets = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)
    except OSError:
        return []
    for family, kind, protocol, _, target in targets:
        with contextlib.suppress(OSError), socket.socket(family, kind, protocol) as probe:
            probe.connect(target)
            name = str(probe.getsockname()[0])
            if not name.startswith(("fe80:", "::1")):  # these have another meaning on other hosts
                found.append(name)
    return found


def _of_interface(name: str) -> str | None:
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            request = struct.pack("256s", name.encode()[:15])
            return socket.inet_ntoa(fcntl.ioctl(probe, _SIOCGIFADDR, request)[20:24])
    except OSError:
        return None
