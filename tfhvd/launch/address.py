"""Where the workers reach the launcher: a listening socket and its addresses."""

from __future__ import annotations

import contextlib
import fcntl
import socket
import struct
from collections.abc import Iterable

_SIOCGIFADDR = 0x8915

BACKLOG = 1024  # connections that a listening socket holds


def listen(*, remote: bool) -> socket.socket:
    """A listening socket on a free port: on every network, or (not remote) on loopback alone."""
    listener = reserve(remote=remote)
    listener.listen(BACKLOG)
    return listener


def reserve(*, remote: bool) -> socket.socket:
    """The same, but for that it does not listen yet: nobody can connect."""
    if remote and socket.has_dualstack_ipv6():
        both = socket.socket(socket.AF_INET6)
        try:
            both.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            both.bind(("", 0))
        except OSError:  # as where a container has no IPv6
            both.close()
        else:
            return both
    one = socket.socket(socket.AF_INET)
    one.bind(("" if remote else "127.0.0.1", 0))
    return one


def detect_loss(sock: socket.socket) -> None:
    """Lets a connection fail within a minute after the other machine is gone."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30)  # seconds
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)


def addresses(
    port: int, *, remote: bool, hosts: Iterable[str] = (), nics: Iterable[str] = ()
) -> str:
    """``host:port,...`` in the order in which workers should try them.

    Args:
        port: the listener's.
        remote: whether workers run on other hosts.
        hosts: their names, where known: what routes lead to them comes first.
        nics: the only network interfaces to name, if any are given.
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
    # The last one serves the workers on this very host.
    return ",".join(f"{name}:{port}" for name in [*names, "127.0.0.1"])


def for_others(addresses: str) -> str:
    """Those of ``host:port,...`` that are not for this very host alone; all, if there are none."""
    found = [each for each in addresses.split(",") if not each.startswith("127.")]
    return ",".join(found) or addresses


def pairs(addresses: str) -> list[tuple[str, int]]:
    """Host and port of each of ``host:port,...``.

    Raises:
        ValueError: if a port is no number.

    Example: ``pairs("::1:80,n1:81") == [("::1", 80), ("n1", 81)]``
    """
    parts = (each.rpartition(":") for each in addresses.split(","))
    return [(host, int(port)) for host, _, port in parts]


def own() -> set[str]:
    """This machine's IPv4 addresses, and those by which IPv6 leaves it."""
    found = {_of_interface(name) for _, name in socket.if_nameindex()}
    return {name for name in found if name} | set(_towards(socket.gethostname()))


def _towards(host: str) -> list[str]:
    """Our own addresses on the way to a host; nothing is sent."""
    found = []
    try:
        targets = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)
    except OSError:
        return []
    for family, kind, protocol, _, target in targets:
        with contextlib.suppress(OSError), socket.socket(family, kind, protocol) as probe:
            probe.connect(target)
            name = str(probe.getsockname()[0])
            if not name.startswith(("fe80:", "::1")):  # which mean something else elsewhere
                found.append(name)
    return found


def _of_interface(name: str) -> str | None:
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            request = struct.pack("256s", name.encode()[:15])
            return socket.inet_ntoa(fcntl.ioctl(probe, _SIOCGIFADDR, request)[20:24])
    except OSError:
        return None
