"""The range of ports for the listeners of a job on several hosts, for firewalls."""

from __future__ import annotations

import errno
import re
import socket
from collections.abc import Callable, Mapping

SETTING = "TFHVD_PORTS"
ANY = range(0)  # the system chooses

_PAIR = re.compile("([0-9]{1,5})-([0-9]{1,5})")


class PortsTakenError(OSError):
    """No port of a range is free."""


def read(text: str) -> range:
    """Reads a range: ``read("20000-20100") == range(20000, 20101)``, ``read("") == ANY``.

    Raises:
        ValueError: if the text is malformed; with the expected form.
    """
    if not text:
        return ANY
    match = _PAIR.fullmatch(text)
    first, last = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 0 < first <= last < 65536:
        raise ValueError("two port numbers, the smaller one first, as in 20000-20100")
    return range(first, last + 1)


def of(environ: Mapping[str, str]) -> range:
    """Returns the ports in an environment; ANY for an invalid setting, which the ranks report."""
    try:
        return read(environ.get(SETTING, ""))
    except ValueError:
        return ANY


def bound(bind: Callable[[int], socket.socket], ports: range) -> socket.socket:
    """Returns a socket that `bind` has bound to the first free port.

    Args:
        bind: binds a new socket to a port; for 0 the system chooses one. It must not set
            SO_REUSEADDR, with which two sockets may have the same port.
        ports: the ports to try; ANY for any port.

    Raises:
        PortsTakenError: if no port is free.
    """
    for port in ports or (0,):
        try:
            return bind(port)
        except OSError as error:
            if not ports or error.errno != errno.EADDRINUSE:
                raise
    raise PortsTakenError(
        errno.EADDRINUSE,
        f"all ports of --ports {ports[0]}-{ports[-1]} ({SETTING}) are taken on host "
        f"{socket.gethostname()}. Give more of them",
    )
