"""How long the doctor may still take: who runs it waits for it."""

from __future__ import annotations

import time

SECONDS = 22.0  # for all questions; the last one, and the end of a job that hangs, take more


class Budget:
    """A time that several steps share.

    Args:
        seconds: for all of them together, from now on.
    """

    def __init__(self, seconds: float = SECONDS) -> None:
        self._until = time.monotonic() + seconds

    def take(self, most: float, least: float = 1.0) -> float:
        """Returns how many of `most` seconds a step may have: `least` in any case."""
        return min(most, max(least, self._until - time.monotonic()))
