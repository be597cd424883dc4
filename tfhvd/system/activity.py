"""Effort: how much a process has done, which shows whether it works or stands still."""

from __future__ import annotations

import time
from dataclasses import dataclass

from tfhvd.system import procfs

BUSY = 0.1  # share of one processor; a process that computes may get no more on a busy machine
WAKES = 5.0  # wake-ups per second; a stuck thread wakes up only because it is observed


@dataclass(frozen=True)
class Effort:
    """The activity of a process so far.

    Attributes:
        pid: the process.
        cpu: seconds of processor time of its threads.
        wakeups: how often its main thread has gone to sleep and woken up.
        taken: the time of this measurement, by the steady clock.
    """

    pid: int
    cpu: float
    wakeups: int
    taken: float

    def is_stillness(self, before: Effort) -> bool:
        """Returns whether the process has done almost nothing since ``before``."""
        seconds = self.taken - before.taken
        return (
            self.pid == before.pid
            and self.cpu - before.cpu < BUSY * seconds
            and self.wakeups - before.wakeups <= WAKES * seconds
        )


def of(pid: int) -> Effort:
    """Measures the activity of a process.

    Raises:
        OSError: if it has ended.
    """
    return Effort(pid, procfs.cpu_seconds(pid), procfs.wakeups(pid)[0], time.monotonic())
