"""Hosts and slots, as ``-H`` and ``--hostfile`` name them: plain values."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tfhvd.launch.errors import UsageError

# user@name:slots, with brackets around a name that is an IPv6 address.
_HOST = re.compile(
    r"(?:([A-Za-z0-9_][A-Za-z0-9_.-]*)@)?"
    r"(?:([A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?)|\[([0-9A-Fa-f:.]+)\])"
    r"(?::([0-9]{1,6}))?"
)
_FORMAT = "Expected: host[:slots],..., for example -H node1:4,joe@node2:4,[fd00::3]:4"


@dataclass(frozen=True)
class Host:
    """A machine and the number of ranks that it may run (at least one).

    Attributes:
        name: the name, or the address.
        slots: the largest number of ranks.
        user: the user with whose name ssh logs in; None for our user.
    """

    name: str
    slots: int
    user: str = ""

    @property
    def is_ipv6(self) -> bool:
        """Whether the name is an IPv6 address."""
        return ":" in self.name

    @property
    def target(self) -> str:
        """The host as an argument of ssh: ``user@name``."""
        return f"{self.user}@{self.name}" if self.user else self.name

    def __str__(self) -> str:
        user = f"{self.user}@" if self.user else ""
        name = f"[{self.name}]" if self.is_ipv6 else self.name
        return f"{user}{name}:{self.slots}"


def parse_hosts(text: str) -> tuple[Host, ...]:
    """Reads ``-H``: ``parse_hosts("a:2,b") == (Host("a", 2), Host("b", 1))``.

    A host named twice has the sum of its slots. Raises UsageError if the text is malformed.
    """
    return _merged(_parse_item(item, text) for item in text.split(","))


def _parse_item(item: str, text: str) -> Host:
    host = _parse_host(item.strip())
    if not item.strip():
        raise UsageError(f"-H has a comma without a host next to it. Received: {text!r}. {_FORMAT}")
    if host is None:
        address = ". Write an IPv6 address in brackets" if item.count(":") > 1 else ""
        raise UsageError(
            f"-H has a malformed part {item.strip()!r}. Received: {text!r}. {_FORMAT}{address}"
        )
    return host


def _parse_host(text: str, unsaid: int = 1) -> Host | None:
    match = _HOST.fullmatch(text)
    if match is None:
        return None
    user, name, address, slots = match.groups()
    count = unsaid if slots is None else _slots(slots)
    if count is None or (address is not None and not _is_ipv6(address)):
        return None
    return Host(name or address, count, user or "")


def _is_ipv6(text: str) -> bool:
    try:
        socket.inet_pton(socket.AF_INET6, text)
    except OSError:
        return False
    return True


def read_hostfile(path: Path) -> tuple[Host, ...]:
    """Reads a host file: a line is ``node1 slots=4`` (Open MPI), ``node1:4`` (MPICH) or ``node1``.

    ``#`` starts a comment; ``max_slots=`` is ignored. Raises UsageError with file and line.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not a text file"
        raise UsageError(f"cannot read the host file {path}: {reason}") from error
    hosts = read_hosts(text, f"the host file {path}")
    if not hosts:
        raise UsageError(f"the host file {path} names no host; write lines like: node1 slots=4")
    return hosts


def read_hosts(text: str, source: str, slots: int = 1) -> tuple[Host, ...]:
    """Reads the lines of a host file, or of a script that prints hosts.

    Args:
        text: the lines.
        source: the source of the lines, for errors.
        slots: the slots of a host whose line gives no number.

    Raises:
        UsageError: if a line is malformed; with its source and number.
    """
    hosts = []
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.split("#", 1)[0].split()
        if line:
            hosts.append(_parse_line(line, slots, f"{source}, line {number}: {raw.strip()!r}"))
    return _merged(hosts)


def _parse_line(words: list[str], slots: int, where: str) -> Host:
    # In a file an address needs no brackets: the slots are a separate word.
    host = Host(words[0], slots) if _is_ipv6(words[0]) else _parse_host(words[0], slots)
    count = None if host is None else host.slots
    for word in words[1:]:
        key, _, value = word.partition("=")
        if key == "slots":
            count = _slots(value)
        elif key not in ("max_slots", "max-slots"):
            count = None
    if host is None or count is None:
        raise UsageError(f"malformed line of {where}. Expected: node1 slots=4")
    return Host(host.name, count, host.user)


def _slots(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[0-9]{1,6}", text) and int(text) > 0 else None


def _merged(hosts: Iterable[Host]) -> tuple[Host, ...]:
    slots: dict[tuple[str, str], int] = {}
    for host in hosts:
        slots[host.name, host.user] = slots.get((host.name, host.user), 0) + host.slots
    return tuple(Host(name, count, user) for (name, user), count in slots.items())


def check_slots(num_proc: int, hosts: tuple[Host, ...]) -> None:
    """Raises UsageError if there are more ranks than slots."""
    total = sum(host.slots for host in hosts)
    if not hosts or num_proc <= total:
        return
    more = -(-num_proc // len(hosts))
    roomy = ",".join(str(replace(host, slots=max(host.slots, more))) for host in hosts)
    given = ",".join(map(str, hosts))
    raise UsageError(
        f"-np {num_proc} asks for more ranks than the hosts have slots: {given} gives {total}. "
        f"Type -np {total}, or give more slots, as in -H {roomy}"
    )


def place(hosts: Sequence[Host], num_proc: int) -> list[tuple[Host, list[int]]]:
    """Returns the ranks of each host: the hosts are filled up to their slots, one after the other.

    Example: ``place([Host("a", 2), Host("b", 2)], 3) == [(a, [0, 1]), (b, [2])]``
    """
    placed, first = [], 0
    for host in hosts:
        last = min(first + host.slots, num_proc)
        if first < last:
            placed.append((host, list(range(first, last))))
        first = last
    return placed


def is_local(name: str) -> bool:
    """Returns whether a host name means this machine."""
    here = socket.gethostname()
    return name in {"localhost", "127.0.0.1", "::1", here, here.split(".")[0]}
