"""Which elements are whose: by number, for any kind of data."""

from __future__ import annotations

import dataclasses

import numpy as np

KEEP, DROP, PAD = "keep", "drop", "pad"
UNEVEN = (KEEP, DROP, PAD)


@dataclasses.dataclass(frozen=True)
class Division:
    """How the elements of an epoch are dealt out: one by one, in an order that all ranks know.

    Attributes:
        rank: whose part it is, among `size`.
        size: how many parts there are.
        shuffle: whether the order is drawn anew for each epoch.
        seed: what the orders of all epochs depend on.
        uneven: "keep", "drop" or "pad": what becomes of the elements that are one too few for all.
    """

    rank: int
    size: int
    shuffle: bool
    seed: int
    uneven: str

    def used(self, length: int) -> int:
        """Returns how many elements all parts together have, of so many."""
        if self.uneven == DROP:
            return length - length % self.size
        if self.uneven == PAD:
            return length + -length % self.size
        return length

    def own(self, length: int) -> int:
        """Returns how many of so many elements are in this part."""
        return len(range(self.rank, self.used(length), self.size))

    def positions(self, length: int, epoch: int) -> slice | np.ndarray:
        """Returns where this part's elements are: a slice where that is enough."""
        used = self.used(length)
        if not self.shuffle and used <= length:
            return slice(self.rank, used, self.size)
        order = self._shuffled(length, epoch) if self.shuffle else np.arange(length)
        return np.resize(order, used)[self.rank :: self.size]

    def _shuffled(self, length: int, epoch: int) -> np.ndarray:
        # NumPy promises the same numbers of RandomState in every release, of Generator it does not.
        key = [self.seed & 0xFFFFFFFF, self.seed >> 32 & 0xFFFFFFFF, epoch]
        return np.random.RandomState(key).permutation(length)
