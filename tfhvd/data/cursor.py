"""The position of a training in its data."""

from __future__ import annotations

import dataclasses

import numpy as np

from tfhvd.data.repartition import changes, place_now
from tfhvd.runtime.membership import membership
from tfhvd.runtime.process_sets import ProcessSet


@dataclasses.dataclass(frozen=True)
class Position:
    """The position of a training in its data: the same on every rank.

    Attributes:
        epoch: the number of the epoch, from 0.
        step: how many global batches of that epoch have been handed out.

    Raises:
        ValueError: for a negative number.

    Example:
        >>> batches.position = hvd.data.Position(epoch=3, step=250)
    """

    epoch: int = 0
    step: int = 0

    def __post_init__(self) -> None:
        if self.epoch < 0 or self.step < 0:
            raise ValueError(
                f"Received: epoch={self.epoch}, step={self.step}. Expected: 0 or above."
            )


class Cursor:
    """The position in one source, which all pipelines that are made of it share.

    An iterator reads the position when its first batch is asked for.

    Args:
        process_set: the ranks that train together.

    Attributes:
        position: of the batch that is handed out next.
    """

    def __init__(self, process_set: ProcessSet) -> None:
        self.position = Position()
        self._rank, self._size = process_set.rank(), process_set.size()
        self._is_of_job = process_set.process_set_id == 0
        if self._is_of_job:
            changes.note_cursor(self)

    def begin(self) -> np.ndarray:
        """Returns what an iterator goes by: the epoch, the step, the rank, the number of ranks."""
        rank, size = self._rank, self._size
        if membership.is_elastic and self._is_of_job:
            rank, size = map(int, place_now())
        return np.array([self.position.epoch, self.position.step, rank, size], np.int64)

    def advance(self) -> None:
        """Records that a batch has been handed out."""
        self.position = dataclasses.replace(self.position, step=self.position.step + 1)

    def end_epoch(self) -> None:
        """Records that there are no more batches in this epoch."""
        self.position = Position(self.position.epoch + 1)
