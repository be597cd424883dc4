"""What /proc shows of a process."""

from __future__ import annotations

import contextlib
import os
import pwd
import re
from collections.abc import Iterator
from pathlib import Path

PROC = Path("/proc")

# States as `state_of` says them.
STOPPED = ("T", "t")
ENDED = ("Z", "X", "")

_MEMORY = "/memfd:"  # so begin the names of files in memory
_TICKS = os.sysconf("SC_CLK_TCK")  # a second


def memory_files(pid: int) -> Iterator[tuple[str, Path]]:
    """Finds the files in memory that a process has open: name and path of each.

    Raises:
        OSError: if it has ended, or is another user's.
    """
    for link in (PROC / str(pid) / "fd").iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            target = str(link.readlink())
            if target.startswith(_MEMORY):
                yield target.removeprefix(_MEMORY).removesuffix(" (deleted)"), link


def all_numbers() -> Iterator[int]:
    """The numbers of all processes, also of those that this user may not look at."""
    for folder in sorted(PROC.iterdir()):
        if folder.name.isdecimal():
            yield int(folder.name)


def threads_that_run(pid: int) -> dict[str, bool]:
    """Whether each thread of a process runs, or waits for a processor, by the threads' ids.

    Raises:
        OSError: if the process has ended.
    """
    run = {}
    for task in (PROC / str(pid) / "task").iterdir():
        with contextlib.suppress(OSError):  # has ended meanwhile
            stat = (task / "stat").read_text(encoding="utf-8")
            run[task.name] = stat.rpartition(")")[2].split()[0] == "R"
    return run


def status_of(pid: int) -> dict[str, str]:
    """Reads what the kernel says of a process, by its own names such as "State".

    Raises:
        OSError: if it has ended.
    """
    text = (PROC / str(pid) / "status").read_text(encoding="utf-8")
    return dict(re.findall(r"^(\w+):\s*(.*)$", text, re.M))


def namespace_of(pid: int) -> int:
    """The number of the space of process numbers that a process is in, as in a container.

    Raises:
        OSError: if it has ended, or is another user's.
    """
    return (PROC / str(pid) / "ns" / "pid").stat().st_ino


def state_of(pid: int) -> str:
    """A process's state, as the kernel says it, such as "S"; "" where it has ended."""
    try:
        return status_of(pid)["State"][0]
    except (OSError, KeyError, IndexError):
        return ""


def environment_of(pid: int) -> dict[str, str]:
    """Reads the environment that a process was started with.

    Raises:
        OSError: if it has ended, or is another user's.
    """
    data = (PROC / str(pid) / "environ").read_bytes()
    entries = (entry.decode(errors="replace").partition("=") for entry in data.split(b"\0"))
    return {name: value for name, _, value in entries if name}


def command_of(pid: int) -> list[str]:
    """Reads the command line of a process, in words.

    Raises:
        OSError: if it has ended.
    """
    data = (PROC / str(pid) / "cmdline").read_bytes()
    return [word.decode(errors="replace") for word in data.split(b"\0")[:-1]]


def user_of(pid: int) -> str:
    """The name of the user whose process it is; the number where it has none.

    Raises:
        OSError: if it has ended.
    """
    number = (PROC / str(pid)).stat().st_uid
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def started_at(pid: int) -> float:
    """When a process was started, in seconds since 1970.

    Raises:
        OSError: if it has ended.
    """
    stat = (PROC / str(pid) / "stat").read_text(encoding="utf-8")
    ticks = int(stat.rpartition(")")[2].split()[19])  # since the machine's start
    booted = re.search(r"^btime (\d+)$", (PROC / "stat").read_text(encoding="utf-8"), re.M)
    return (int(booted[1]) if booted else 0) + ticks / _TICKS


def cpu_seconds(pid: int) -> float:
    """The processor time that all threads of a process have taken.

    Raises:
        OSError: if it has ended.
    """
    stat = (PROC / str(pid) / "stat").read_text(encoding="utf-8")
    fields = stat.rpartition(")")[2].split()  # a name may have spaces and brackets
    return (int(fields[11]) + int(fields[12])) / _TICKS


def wakeups(pid: int) -> tuple[int, int]:
    """How often threads have gone to sleep and woken up so far: the main thread, and all together.

    Raises:
        OSError: if it has ended.
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
    """The function of the kernel in which the main thread waits; "" where it does not say."""
    with contextlib.suppress(OSError):
        name = (PROC / str(pid) / "wchan").read_text(encoding="utf-8").strip()
        return "" if name == "0" else name
    return ""


def above(pid: int) -> Iterator[int]:
    """The processes that have started this one: its parent, and so on."""
    with contextlib.suppress(OSError, KeyError):
        while pid > 1:
            pid = int(status_of(pid)["PPid"])
            yield pid
