"""Limits that control groups set for a process, and how often these limits have acted.

Both versions of control groups are supported. Because a container sees its group as the root, each
value is read in the group of the process and in the groups above.
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
    """The names of a value's files in version 2, and under a controller of version 1."""

    unified: str
    controller: str
    files: tuple[str, ...]


CPU_LIMIT = Value("cpu.max", "cpu", ("cpu.cfs_quota_us", "cpu.cfs_period_us"))
MEMORY_LIMIT = Value("memory.max", "memory", ("memory.limit_in_bytes",))
_CPU_COUNTS = Value("cpu.stat", "cpu", ("cpu.stat",))
_MEMORY_KILLS = Value("memory.events", "memory", ("memory.oom_control",))
_MEMORY_SHORTAGES = Value("memory.events", "memory", ("memory.failcnt",))


def files_of(groups: str, value: Value, root: Path = ROOT) -> Iterator[tuple[Path, ...]]:
    """Yields the files that may hold a value: first in the group of the process, then above.

    Args:
        groups: the contents of the file `cgroup` of the process in /proc.
        value: the value.
        root: the folder in which the kernel shows all groups.
    """
    for line in groups.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:  # version 2
            yield from _upwards(root, path, value.unified)
        elif value.controller in controllers.split(","):
            yield from _upwards(root / value.controller, path, *value.files)


def memory_kills(own: Path = OWN, root: Path = ROOT) -> int:
    """Counts the processes that the kernel has killed so far because a group's memory ran out.

    Args:
        own: the file in which the kernel lists the groups of a process.
        root: the folder in which the kernel shows all groups.

    Returns:
        The count. It is 0 if unknown: without control groups, or with a kernel before 4.13.
    """
    return next(_counts(own, root, _MEMORY_KILLS, "oom_kill"), 0)


def memory_shortages(own: Path = OWN, root: Path = ROOT) -> int:
    """Counts how often a group has reached the limit of its memory; 0 if unknown."""
    return next(_counts(own, root, _MEMORY_SHORTAGES, "max"), 0)


def throttled_seconds(own: Path = OWN, root: Path = ROOT) -> float:
    """Returns the total time for which a quota has kept the processes of a group waiting."""
    microseconds = max(_counts(own, root, _CPU_COUNTS, "throttled_usec"), default=0)
    nanoseconds = max(_counts(own, root, _CPU_COUNTS, "throttled_time"), default=0)  # version 1
    return max(microseconds / 1e6, nanoseconds / 1e9)


def _upwards(root: Path, path: str, *names: str) -> Iterator[tuple[Path, ...]]:
    group = Path(path.lstrip("/"))
    for part in (group, *group.parents):
        yield tuple(root / part / name for name in names)


def _counts(own: Path, root: Path, value: Value, key: str) -> Iterator[int]:
    """Yields the counts of `key` in a value's files; a file with one number has any key."""
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
