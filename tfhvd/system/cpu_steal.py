"""The time for which other work on a machine has kept a thread from a processor."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection
from pathlib import Path

_WAITS = Path("/proc/thread-self/schedstat")
_PROCESSORS = Path("/proc/stat")
_STOLEN = 8  # the word with the time that a virtual machine's host took, in a processor's line


def seconds() -> float:
    """Returns for how long so far the calling thread was ready to run, but had no processor.

    Returns:
        The sum of the time of other threads on this machine, and of the time of other virtual
        machines (the average over the processors that the thread may use). A time that the kernel
        does not report counts as 0.
    """
    found = 0.0
    with contextlib.suppress(OSError, ValueError):
        found += waited(_WAITS.read_text(encoding="ascii"))
    with contextlib.suppress(OSError, ValueError):
        own = os.sched_getaffinity(0)
        found += stolen(_PROCESSORS.read_text(encoding="ascii"), own, os.sysconf("SC_CLK_TCK"))
    return found


def waited(schedstat: str) -> float:
    """Returns the seconds for which a thread waited for a processor.

    Args:
        schedstat: the contents of the thread's file `schedstat`.

    Raises:
        ValueError: if the contents have another form.
    """
    _, nanoseconds, _ = schedstat.split()
    return 1e-9 * int(nanoseconds)


def stolen(stat: str, processors: Collection[int], ticks: int) -> float:
    """Returns the seconds that this virtual machine's host took, as an average over processors.

    Args:
        stat: the contents of /proc/stat.
        processors: the numbers of the processors that count.
        ticks: the ticks of the kernel's clock per second.
    """
    names = {f"cpu{number}" for number in processors}
    lines = (line.split() for line in stat.splitlines())
    found = [int(words[_STOLEN]) for words in lines if words and words[0] in names]
    return sum(found) / len(found) / ticks if found else 0.0
