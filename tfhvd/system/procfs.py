"""Facts about processes, from /proc."""

from __future__ import annotations

import contextlib
import os
import pwd
import re
from collections.abc import Iterator
from pathlib import Path

PROC = Path("/proc")

# States as `state_of` returns them.
STOPPED = ("T", "t")
ENDED = ("Z", "X", "")

_MEMORY = "/memfd:"  # the beginning of the names of files in memory
_TICKS = os.sysconf("SC_CLK_TCK")  # per second


def memory_files(pid: int) -> Iterator[tuple[str, Path]]:
    """Yields name and path of each file in memory that a process has open.

    Raises:
        OSError: if the process has ended, or belongs to another user.
    """
    for link in (PROC / str(pid) / "fd").iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            target = str(link.readlink())
            if target.startswith(_MEMORY):
                yield target.removeprefix(_MEMORY).removesuffix(" (deleted)"), link


def all_numbers() -> Iterator[int]:
    """Yields the ids of all processes, also of those that this user may not inspect."""
    for folder in sorted(PROC.iterdir()):
        if folder.name.isdecimal():
            yield int(folder.name)


def threads_that_run(pid: int) -> dict[str, bool]:
    """Returns by thread id whether each thread of a process runs, or waits for a processor.

    Raises:
        OSError: if the process has ended.
    """
    run = {}
    for task in (PROC / str(pid) / "task").iterdir():
        with contextlib.suppress(OSError):  # ended meanwhile
            stat = (task / "stat").read_text(encoding="utf-8")
            run[task.name] = stat.rpartition(")")[2].split()[0] == "R"
    return run


def status_of(pid: int) -> dict[str, str]:
    """Reads the status of a process, by the kernel's names such as "State".

    Raises:
        OSError: if the process has ended.
    """
    text = (PROC / str(pid) / "status").read_text(encoding="utf-8")
    return dict(re.findall(r"^(\w+):\s*(.*)$", text, re.M))


def namespace_of(pid: int) -> int:
    """Returns the number of a process's PID namespace; a container has a different one.

    Raises:
        OSError: if the process has ended, or belongs to another user.
    """
    return (PROC / str(pid) / "ns" / "pid").stat().st_ino


def state_of(pid: int) -> str:
    """Returns the kernel's state of a process, such as "S"; "" if the process has ended."""
    try:
        return status_of(pid)["State"][0]
    except (OSError, KeyError, IndexError):
        return ""


def environment_of(pid: int) -> dict[str, str]:
    """Reads the environment with which a process was started.

    Raises:
        OSError: if the process has ended, or belongs to another user.
    """
    data = (PROC / str(pid) / "environ").read_bytes()
    entries = (entry.decode(errors="replace").partition("=") for entry in data.split(b"\0"))
    return {name: value for name, _, value in entries if name}


def command_of(pid: int) -> list[str]:
    """Reads the command line of a process, as a list of arguments.

    Raises:
        OSError: if the process has ended.
    """
    data = (PROC / str(pid) / "cmdline").read_bytes()
    return [word.decode(errors="replace") for word in data.split(b"\0")[:-1]]


def user_of(pid: int) -> str:
    """Returns the name of a process's user; the number of the user if there is no name.

    Raises:
        OSError: if the process has ended.
    """
    number = (PROC / str(pid)).stat().st_uid
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def started_at(pid: int) -> float:
    """Returns the start time of a process, in seconds since 1970.

    Raises:
        OSError: if the process has ended.
    """
    stat = (PROC / str(pid) / "stat").read_text(encoding="utf-8")
    ticks = int(stat.rpartition(")")[2].split()[19])  # since the machine's start
    booted = re.search(r"^btime (\d+)$", (PROC / "stat").read_text(encoding="utf-8"), re.M)
    return (int(booted[1]) if booted else 0) + ticks / _TICKS


def cpu_seconds(pid: int) -> float:
    """Returns the processor time of all threads of a process, in seconds.

    Raises:
        OSError: if the process has ended.
    """
    stat = (PROC / str(pid) / "stat").read_text(encoding="utf-8")
    fields = stat.rpartition(")")[2].split()  # a name may have spaces and brackets
    return (int(fields[11]) + int(fields[12])) / _TICKS


def wakeups(pid: int) -> tuple[int, int]:
    """Counts how often threads have slept and woken up so far: the main thread, and all together.

    Raises:
        OSError: if the process has ended.
    """
    main = total = 0
    for thread in (PROC / str(pid) / "task").iterdir():
        with contextlib.suppress(OSError):  # ended meanwhile
            text = (thread / "status").read_text(encoding="utf-8")
            found = re.search(r"^voluntary_ctxt_switches:\s*(\d+)", text, re.M)
            count = int(found[1]) if found else 0
            total += count
            main += count if thread.name == str(pid) else 0
    return main, total


def waits_in(pid: int) -> str:
    """Returns the kernel function in which the main thread waits; "" if unknown."""
    with contextlib.suppress(OSError):
        name = (PROC / str(pid) / "wchan").read_text(encoding="utf-8").strip()
        return "" if name == "0" else name
    return ""


def above(pid: int) -> Iterator[int]:
    """Yields the ancestors of a process, from its parent on."""
    with contextlib.suppress(OSError, KeyError):
        while pid > 1:
            pid = int(status_of(pid)["PPid"])
            yield pid
