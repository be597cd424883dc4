"""What the control groups of a process allow it, and what they have kept from it.

Both versions of control groups are read. A container sees its own group as the root: so a value is
looked for in the process's group and in those above it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")


@dataclass(frozen=True)
class Value:
    """The names of a value's files: in version 2, and of a controller of version 1."""

    unified: str
    controller: str
    files: tuple[str, ...]


CPU_LIMIT = Value("cpu.max", "cpu", ("cpu.cfs_quota_us", "cpu.cfs_period_us"))
MEMORY_LIMIT = Value("memory.max", "memory", ("memory.limit_in_bytes",))
_CPU_COUNTS = Value("cpu.stat", "cpu", ("cpu.stat",))
_MEMORY_KILLS = Value("memory.events", "memory", ("memory.oom_control",))
_MEMORY_SHORTAGES = Value("memory.events", "memory", ("memory.failcnt",))


def files_of(groups: str, value: Value, root: Path = ROOT) -> Iterator[tuple[Path, ...]]:
    """The files that may hold a value: the process's own group comes before those above it.

    Args:
        groups: what the file `cgroup` of the process, in /proc, says.
        value: what is looked for.
        root: where the kernel shows what it knows of all groups.
    """
    for line in groups.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:  # version 2
            yield from _upwards(root, path, value.unified)
        elif value.controller in controllers.split(","):
            yield from _upwards(root / value.controller, path, *value.files)


def memory_kills(own: Path = OWN, root: Path = ROOT) -> int:
    """How many processes the kernel has killed so far because a group's memory ran out.

    Args:
        own: where the kernel lists the groups of a process.
        root: as above.

    Returns:
        0 too where that is not known: without control groups, or with a kernel before 4.13.
    """
    return next(_counts(own, root, _MEMORY_KILLS, "oom_kill"), 0)


def memory_shortages(own: Path = OWN, root: Path = ROOT) -> int:
    """How often a group was at the limit of its memory; 0 where it is not known."""
    return next(_counts(own, root, _MEMORY_SHORTAGES, "max"), 0)


def throttled_seconds(own: Path = OWN, root: Path = ROOT) -> float:
    """How long a quota has kept the processes of a group from a processor, all in all."""
    microseconds = max(_counts(own, root, _CPU_COUNTS, "throttled_usec"), default=0)
    nanoseconds = max(_counts(own, root, _CPU_COUNTS, "throttled_time"), default=0)  # version 1
    return max(microseconds / 1e6, nanoseconds / 1e9)


def _upwards(root: Path, path: str, *names: str) -> Iterator[tuple[Path, ...]]:
    group = Path(path.lstrip("/"))
    for part in (group, *group.parents):
        yield tuple(root / part / name for name in names)


def _counts(own: Path, root: Path, value: Value, key: str) -> Iterator[int]:
    """What a value's files say of `key`; a file that holds a number alone says it of everything."""
    try:
        groups = own.read_text(encoding="utf-8")
    except OSError:
        return
    for file, *_ in files_of(groups, value, root):
        with contextlib.suppress(OSError, ValueError):
            for line in file.read_text(encoding="utf-8").splitlines():
                *name, count = line.split()
                if name in ([key], []):
                    yield int(count)
