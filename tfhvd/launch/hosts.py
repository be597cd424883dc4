"""Hosts and slots: what ``-H`` and ``--hostfile`` say, as plain values."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tfhvd.launch.errors import UsageError

_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?")
_FORMAT = "Expected: host[:slots],..., for example -H node1:4,node2:4"


@dataclass(frozen=True)
class Host:
    """A machine and how many ranks it may run (at least one)."""

    name: str
    slots: int

    def __str__(self) -> str:
        return f"{self.name}:{self.slots}"


def parse_hosts(text: str) -> tuple[Host, ...]:
    """Reads ``-H``: ``parse_hosts("a:2,b") == (Host("a", 2), Host("b", 1))``.

    A host named twice has the sum of its slots. Raises UsageError where the text is malformed.
    """
    return _merged(_parse_item(item, text) for item in text.split(","))


def _parse_item(item: str, text: str) -> Host:
    name, colon, slots = item.strip().partition(":")
    count = _slots(slots) if colon else 1
    if not _NAME.fullmatch(name) or count is None:
        raise UsageError(f"-H has a malformed part {item.strip()!r}. Received: {text!r}. {_FORMAT}")
    return Host(name, count)


def read_hostfile(path: Path) -> tuple[Host, ...]:
    """Reads a host file: a line is ``node1 slots=4`` (Open MPI), ``node1:4`` (MPICH) or ``node1``.

    ``#`` starts a comment; ``max_slots=`` is read over. Raises UsageError naming file and line.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not a text file"
        raise UsageError(f"cannot read the host file {path}: {reason}") from error
    hosts = []
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.split("#", 1)[0].split()
        if line:
            hosts.append(_parse_line(line, f"{path}, line {number}: {raw.strip()!r}"))
    if not hosts:
        raise UsageError(f"the host file {path} names no host; write lines like: node1 slots=4")
    return _merged(hosts)


def _parse_line(words: list[str], where: str) -> Host:
    name, colon, slots = words[0].partition(":")
    count = _slots(slots) if colon else 1
    for word in words[1:]:
        key, _, value = word.partition("=")
        if key == "slots":
            count = _slots(value)
        elif key not in ("max_slots", "max-slots"):
            count = None
    if not _NAME.fullmatch(name) or count is None:
        raise UsageError(f"malformed host file {where}. Expected: node1 slots=4")
    return Host(name, count)


def _slots(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[0-9]{1,6}", text) and int(text) > 0 else None


def _merged(hosts: Iterable[Host]) -> tuple[Host, ...]:
    slots: dict[str, int] = {}
    for host in hosts:
        slots[host.name] = slots.get(host.name, 0) + host.slots
    return tuple(Host(name, count) for name, count in slots.items())


def check_slots(num_proc: int, hosts: tuple[Host, ...]) -> None:
    """Raises UsageError where more ranks are asked for than the hosts have slots."""
    total = sum(host.slots for host in hosts)
    if not hosts or num_proc <= total:
        return
    more = -(-num_proc // len(hosts))
    roomy = ",".join(f"{host.name}:{max(host.slots, more)}" for host in hosts)
    given = ",".join(map(str, hosts))
    raise UsageError(
        f"-np {num_proc} asks for more ranks than the hosts have slots: {given} gives {total}. "
        f"Type -np {total}, or give more slots, as in -H {roomy}"
    )


def is_local(name: str) -> bool:
    """Whether a host name means this machine."""
    here = socket.gethostname()
    return name in {"localhost", "127.0.0.1", here, here.split(".")[0]}
