"""How much a process does: whether it works on, or stands still."""

from __future__ import annotations

import time
from dataclasses import dataclass

from tfhvd.system import procfs

BUSY = 0.1  # of one processor: it computes, and on a busy machine it may get no more
WAKES = 5.0  # a second: a thread that is stuck does not wake up, but for being looked at


@dataclass(frozen=True)
class Effort:
    """What a process has done so far.

    Attributes:
        pid: the process.
        cpu: seconds of processor time of its threads.
        wakeups: how often its main thread has gone to sleep and woken up.
        taken: when, by the steady clock.
    """

    pid: int
    cpu: float
    wakeups: int
    taken: float

    def is_stillness(self, before: Effort) -> bool:
        """Whether it has done nothing to speak of since ``before``."""
        seconds = self.taken - before.taken
        return (
            self.pid == before.pid
            and self.cpu - before.cpu < BUSY * seconds
            and self.wakeups - before.wakeups <= WAKES * seconds
        )


def of(pid: int) -> Effort:
    """Looks at a process.

    Raises:
        OSError: if it has ended.
    """
    return Effort(pid, procfs.cpu_seconds(pid), procfs.wakeups(pid)[0], time.monotonic())
