"""FitRanks: the ranks that train a model together in one `fit`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from tfhvd.job import process
from tfhvd.keras.wrap.model_state import process_set_of
from tfhvd.ops import allgather
from tfhvd.runtime.process_sets import ProcessSet, global_process_set, has_peers

if TYPE_CHECKING:
    from tfhvd.compat.types import Model

_ALONE = ProcessSet([0])


class FitRanks:
    """The ranks that train a model together: those among which its gradients are reduced.

    A tape's gradients show this only in the first step. Until then it is this rank alone.

    Args:
        model: of either Keras.
        knows_no_step: whether this rank, which has joined, cannot see a step of its own before the
            others expect it.
    """

    def __init__(self, model: Model, knows_no_step: bool) -> None:
        self._model = model
        self._found: ProcessSet | None = global_process_set if knows_no_step else None

    @property
    def process_set(self) -> ProcessSet:
        """The ranks, as far as this rank knows already."""
        if self._found is None:
            self._found = process_set_of(self._model)
        return self._found or _ALONE

    @property
    def are_several(self) -> bool:
        """Whether gradients are reduced, as far as this rank knows already."""
        return has_peers(self.process_set)

    @property
    def are_a_part(self) -> bool:
        """Whether only a part of the job's ranks train in this `fit`."""
        return self.are_several and self.process_set.process_set_id != 0

    @property
    def numbers(self) -> Sequence[int]:
        """The ranks' numbers in the job."""
        return self.process_set.ranks or range(process.size())

    @property
    def is_first(self) -> bool:
        """Whether this rank is the first one."""
        return bool(process.rank() == self.numbers[0])

    def gather(self, what: str, values: Sequence[float]) -> np.ndarray:
        """Return the values of all ranks, a row for each rank. A collective."""
        own = tf.constant(np.array([[int(value) for value in values]], np.int64))
        return allgather(own, name=f"fit/{what}", process_set=self.process_set).numpy()

    def are_all_in(self, rows: np.ndarray) -> bool:
        """Return whether each rank has a row; a rank that has ended its `fit` has none."""
        return len(rows) == self.process_set.size()
