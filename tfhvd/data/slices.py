"""Which places of an epoch a rank has in each step: a slice of each global batch."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np


def part_of(length: Any, rank: Any, size: Any) -> tuple[Any, Any]:
    """Returns the begin and the end of a rank's part of so many samples.

    The numbers are Python's, arrays, or tensors. The first rank's part is never the smaller one.
    """
    return -(-length * rank // size), -(-length * (rank + 1) // size)


@dataclasses.dataclass(frozen=True)
class Slices:
    """How an epoch is cut into global batches, and these into a part for each rank.

    Attributes:
        length: how many samples an epoch has.
        global_batch: how many samples a step has on all ranks together.
        drop_remainder: whether the last batch is left out if it is shorter.
    """

    length: int
    global_batch: int
    drop_remainder: bool

    @property
    def steps(self) -> int:
        """How many steps an epoch has."""
        up = 0 if self.drop_remainder else self.global_batch - 1
        return (self.length + up) // self.global_batch

    def steps_of(self, rank: int, size: int) -> int:
        """Returns in how many steps a rank has samples: in the last one it may have none.

        The first rank always has some.
        """
        begins, ends = self._bounds(np.arange(max(self.steps - 1, 0), self.steps), rank, size)
        return self.steps - int((begins == ends).sum())

    def places(self, first: int, last: int, rank: int, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns a rank's places in the steps from `first` up to `last`, and how many in each."""
        begins, ends = self._bounds(np.arange(first, last), rank, size)
        counts = ends - begins
        offsets = np.repeat(begins - np.cumsum(counts) + counts, counts)
        return offsets + np.arange(counts.sum()), counts

    def _bounds(self, steps: np.ndarray, rank: int, size: int) -> tuple[np.ndarray, np.ndarray]:
        begins = steps * self.global_batch
        lengths = np.minimum(begins + self.global_batch, self.length) - begins
        first, last = part_of(lengths, rank, size)
        return begins + first, begins + last
