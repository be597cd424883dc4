"""Whether the kernel has killed a process of this control group because memory ran out."""

from __future__ import annotations

import contextlib
from pathlib import Path

_GROUPS = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")


def count(own: Path = _OWN, groups: Path = _GROUPS) -> int:
    """How many processes of this process's control group the kernel has killed so far for memory.

    Args:
        own: where the kernel lists the groups of this process.
        groups: where it shows what it knows of all groups.

    Returns:
        0 too where that is not known: without control groups, or with a kernel before 4.13.
    """
    with contextlib.suppress(OSError, ValueError):
        for line in own.read_text(encoding="utf-8").splitlines():
            number, controllers, path = line.split(":", 2)
            if number == "0" and not controllers:  # version 2
                top, name = groups, "memory.events"
            elif controllers == "memory":
                top, name = groups / "memory", "memory.oom_control"
            else:
                continue
            for folder in (top / path.lstrip("/"), top):  # a container may see its own as the root
                found = _kills_in(folder / name)
                if found is not None:
                    return found
    return 0


def _kills_in(file: Path) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        for line in file.read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition(" ")
            if key == "oom_kill":
                return int(value)
    return None
