"""How long the doctor may still take: who runs it waits for it."""

from __future__ import annotations

import time

SECONDS = 26.0  # for all questions; the end of a job that hangs takes a few more
_LEAST = 1.0  # seconds that are given in any case


class Budget:
    """A time that several steps share.

    Args:
        seconds: for all of them together, from now on.
    """

    def __init__(self, seconds: float = SECONDS) -> None:
        self._until = time.monotonic() + seconds

    def take(self, most: float) -> float:
        """Returns how many of `most` seconds a step may have."""
        return min(most, max(_LEAST, self._until - time.monotonic()))
