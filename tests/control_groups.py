"""Makes control groups, which limit processes as a container does: of either version; for root."""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")


class NoRightError(Exception):
    """This process cannot make a control group."""


@contextlib.contextmanager
def made(
    controller: str, old: Mapping[str, object], new: Mapping[str, object] | None
) -> Iterator[Path]:
    """Makes a group, and removes it once its last process, which may still be ending, is gone.

    Args:
        controller: of version 1, such as "cpu".
        old: what to write to which of its files there.
        new: the same of version 2; None where that does not do.

    Yields:
        The file that takes the number of a process that is to be in it.

    Raises:
        NoRightError: if it cannot be made.
    """
    is_old = (ROOT / controller).is_dir()
    name = f"tfhvd-test-{uuid.uuid4().hex[:8]}"
    group = ROOT / controller / name if is_old else ROOT / name
    values = old if is_old else new
    if values is None:
        raise NoRightError("control groups are of version 2 here")
    try:
        group.mkdir()
    except OSError as error:
        raise NoRightError(str(error)) from error
    try:
        try:
            for file, value in values.items():
                (group / file).write_text(str(value))
        except OSError as error:
            raise NoRightError(str(error)) from error
        yield group / "cgroup.procs"
    finally:
        _remove(group)


@contextlib.contextmanager
def words_in(
    controller: str, old: Mapping[str, object], new: Mapping[str, object] | None
) -> Iterator[list[str]]:
    """Makes a group as `made` does; gives the words that start a command in it."""
    with made(controller, old, new) as file:
        yield ["sh", "-c", f'echo $$ >{file} && exec "$@"', "limited"]


def possible() -> bool:
    """Whether this process may make groups of version 1, whose counts of memory tests look at."""
    return os.access(ROOT / "memory", os.W_OK)


def own(controller: str) -> Path:
    """The file that takes a process back into the group in which this one is now."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        if controller in controllers.split(",") and (ROOT / controller).is_dir():
            return ROOT / controller / path.lstrip("/") / "cgroup.procs"
        if number == "0" and not (ROOT / controller).is_dir():
            return ROOT / path.lstrip("/") / "cgroup.procs"
    raise NoRightError(f"this process is in no group of {controller}")


def quota(percent: int, period: int = 10_000) -> tuple[str, dict[str, object], dict[str, object]]:
    """What `made` is given for so much of one processor, in slices of so many microseconds."""
    limit = percent * period // 100
    old = {"cpu.cfs_period_us": period, "cpu.cfs_quota_us": limit}
    return "cpu", old, {"cpu.max": f"{limit} {period}"}


def memory(limit: int) -> tuple[str, dict[str, object], dict[str, object]]:
    """What `made` is given for so many bytes of memory."""
    return "memory", {"memory.limit_in_bytes": limit}, {"memory.max": limit}


def _remove(group: Path) -> None:
    until = time.monotonic() + 30
    while True:
        try:
            group.rmdir()
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)
