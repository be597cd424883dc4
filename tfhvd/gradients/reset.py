"""What a process knows of earlier gradients, and reduces the next ones by.

| of what | what | here |
|---|---|---|
| gradients of several calls that make an update | their sums, and how many there were | dropped |
| a compression with a state | what this rank has left out | each rank's own: kept |

Ranks of which some have just come must know the same.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tfhvd.compression.stateful import left_out_as_before
from tfhvd.gradients import accumulator


def begin_anew() -> None:
    """Forgets all earlier reductions of this process; all ranks do this at the same point."""
    accumulator.begin_anew()


@contextlib.contextmanager
def nothing_left() -> Iterator[None]:
    """Leaves nothing of the gradients that are reduced inside, for a rank that only rehearses."""
    try:
        with left_out_as_before():
            yield
    finally:
        begin_anew()
