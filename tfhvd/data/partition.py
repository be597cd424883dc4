"""Which elements are whose: by number, for any kind of data."""

from __future__ import annotations

import dataclasses

import numpy as np

from tfhvd.data.order import Order

KEEP, DROP, PAD = "keep", "drop", "pad"
UNEVEN = (KEEP, DROP, PAD)


@dataclasses.dataclass(frozen=True)
class Division:
    """How the elements of an epoch are dealt out: one by one, in an order that all ranks know.

    Attributes:
        rank: whose part it is, among `size`.
        size: how many parts there are.
        shuffle: whether each epoch has a different order.
        seed: for the orders of all epochs.
        uneven: "keep", "drop" or "pad": what happens to elements that do not divide evenly.
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
        """Returns the places of this part's elements: a slice if that is enough."""
        used = self.used(length)
        if not self.shuffle and used <= length:
            return slice(self.rank, used, self.size)
        places = np.resize(np.arange(length), used)[self.rank :: self.size]
        return Order(length, self.shuffle, self.seed).samples(epoch, places)
