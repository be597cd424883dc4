"""The order of the samples of an epoch, which needs no memory: each place tells its sample."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

_ROUNDS = 16  # each shifts one half; with 12, some orders of six samples come too often
_MASK = 0xFFFFFFFFFFFFFFFF


@dataclasses.dataclass(frozen=True)
class Order:
    """Which sample is at which place of an epoch.

    A shuffled order is a different permutation for each epoch. It is computed only for the
    requested places, so that ten billion samples take no more memory than ten. It depends on the
    seed, the epoch and the length, and on nothing else: not on the number of ranks, on TensorFlow's
    seeds, or on the releases of NumPy and TensorFlow.

    Attributes:
        length: how many samples an epoch has.
        shuffle: whether the order is shuffled.
        seed: for the orders of all epochs.
    """

    length: int
    shuffle: bool
    seed: int

    def samples(self, epoch: int, places: np.ndarray) -> np.ndarray:
        """Returns the numbers of the samples at some places, from 0 to `length` - 1 as these are.

        A Feistel network permutes the numbers below `wide` * `high`, of which there are hardly more
        than `length`; a number that is too large goes through it once more.
        """
        found = np.array(places, np.uint64)
        if not self.shuffle or self.length < 2:
            return found.astype(np.int64)
        wide = math.isqrt(self.length - 1) + 1
        high = -(-self.length // wide)
        keys = _keys(self.seed, epoch)
        outside = np.arange(found.size)
        while outside.size:
            found[outside] = _permuted(found[outside], np.uint64(wide), np.uint64(high), keys)
            outside = outside[found[outside] >= self.length]
        return found.astype(np.int64)


def _permuted(
    numbers: np.ndarray, wide: np.uint64, high: np.uint64, keys: list[np.uint64]
) -> np.ndarray:
    """Permutes the numbers below `wide` * `high`: a hash of one half shifts the other, in turn."""
    left, right = np.divmod(numbers, wide)
    for of_left, of_right in zip(keys[::2], keys[1::2]):
        left = (left + _mixed(right ^ of_left) % high) % high
        right = (right + _mixed(left ^ of_right) % wide) % wide
    return left * wide + right


def _keys(seed: int, epoch: int) -> list[np.uint64]:
    """Returns a key for each round."""
    start = _mixed(np.array([seed & _MASK, epoch & _MASK], np.uint64))
    first = _mixed(start[:1] ^ (start[1:] << np.uint64(1)))
    numbers = np.arange(1, _ROUNDS + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return list(_mixed(first + numbers))


def _mixed(numbers: np.ndarray) -> np.ndarray:
    """Returns a hash of each number: the last step of the generator SplitMix64."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))
