"""How long what else runs on a machine has kept a thread from a processor."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection
from pathlib import Path

_WAITS = Path("/proc/thread-self/schedstat")
_PROCESSORS = Path("/proc/stat")
_STOLEN = 8  # the word of a processor's line that counts what the host of a virtual machine took


def seconds() -> float:
    """How long the calling thread was ready to run, and something else had its processor, so far.

    Returns:
        The sum of what other threads of this machine took, and of what other virtual machines did
        (the latter on average over the processors that the thread may use); 0 for what the kernel
        does not say.
    """
    found = 0.0
    with contextlib.suppress(OSError, ValueError):
        found += waited(_WAITS.read_text(encoding="ascii"))
    with contextlib.suppress(OSError, ValueError):
        own = os.sched_getaffinity(0)
        found += stolen(_PROCESSORS.read_text(encoding="ascii"), own, os.sysconf("SC_CLK_TCK"))
    return found


def waited(schedstat: str) -> float:
    """Seconds for which a thread waited for a processor.

    Args:
        schedstat: the thread's file of that name.

    Raises:
        ValueError: if it is none.
    """
    _, nanoseconds, _ = schedstat.split()
    return 1e-9 * int(nanoseconds)


def stolen(stat: str, processors: Collection[int], ticks: int) -> float:
    """Seconds for which the host of this virtual machine ran something else, a processor.

    Args:
        stat: what /proc/stat says.
        processors: those that count.
        ticks: of the kernel's clock, a second.
    """
    names = {f"cpu{number}" for number in processors}
    lines = (line.split() for line in stat.splitlines())
    found = [int(words[_STOLEN]) for words in lines if words and words[0] in names]
    return sum(found) / len(found) / ticks if found else 0.0
