"""What the kernel has counted of this process's TCP connections: those of tfhvd, and of its MPI."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

from tfhvd.profiling.trace import Sent

# Of `struct tcp_info` in linux/tcp.h: tcpi_bytes_acked, and tcpi_busy_time and tcpi_rwnd_limited in
# microseconds. Later kernels add fields behind these.
_ACKED = struct.Struct("=120xQ")
_BUSY = struct.Struct("=168xQQ")


def read() -> dict[tuple[str, str], Sent]:
    """Reads what was sent so far over each connection to another process, by its two ends.

    Returns:
        None of them if the kernel does not count, or nothing is sent by TCP.
    """
    found = {}
    for each in _sockets():
        with each, contextlib.suppress(OSError, struct.error):
            ends = _text(each.getsockname()), _text(each.getpeername())
            about = each.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
            (acked,) = _ACKED.unpack_from(about)
            busy, unread = _BUSY.unpack_from(about)
            # While the other process reads nothing, the link is not what is waited for.
            found[ends] = Sent(*ends, acked, max(0, busy - unread) / 1e6)
    return found


def since(before: Mapping[tuple[str, str], Sent]) -> tuple[Sent, ...]:
    """What was sent since an earlier `read`, over connections that were there then."""
    found = []
    for ends, now in read().items():
        then = before.get(ends)
        if then is not None:
            # Also if nothing was sent this way: the other end finds its host by it.
            found.append(Sent(*ends, now.bytes - then.bytes, now.busy - then.busy))
    return tuple(found)


def _sockets() -> Iterator[socket.socket]:
    """A second descriptor of each TCP socket of this process."""
    if socket.getdefaulttimeout() is not None:
        return  # Python would make each of them non-blocking, and with it the first descriptor
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if not str(link.readlink()).startswith("socket:"):
                continue
            own = os.dup(int(link.name))
            try:
                found = socket.socket(fileno=own)
            except OSError:
                os.close(own)
                continue
            if found.family in (socket.AF_INET, socket.AF_INET6) and found.type == (
                socket.SOCK_STREAM
            ):
                yield found
            else:
                found.close()


def _text(address: tuple[str, int]) -> str:
    """One text for an end, whether its socket is of IPv4, or of IPv6 and takes both."""
    return f"{address[0].removeprefix('::ffff:')}:{address[1]}"
