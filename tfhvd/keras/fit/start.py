"""What `fit` makes alike on all ranks beside their weights: where it begins, and learning rates.

Both may be set on one rank alone: by BackupAndRestore, which only rank 0 is to have, or by
ReduceLROnPlateau without an average of metrics. The ranks take rank 0's, and those that had others
say so.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tfhvd.compat import training
from tfhvd.job import process
from tfhvd.keras.wrap import learning_rate
from tfhvd.runtime.membership import membership

if TYPE_CHECKING:
    from tfhvd.compat.types import Model, Optimizer

_logger = logging.getLogger("tfhvd")


class Start:
    """Where a `fit` of a model begins.

    Attributes:
        initial_epoch: what `fit` is given.
    """

    def __init__(self, model: Model) -> None:
        self.initial_epoch = 0
        self._model = model
        self._undo: Callable[[], None] | None = None

    def own(self, steps: int | None) -> tuple[int, int]:
        """Returns this rank's epoch, and the step in it.

        Args:
            steps: of an epoch, None where that is not known.
        """
        return training.where_fit_begins(self._model, self.initial_epoch, steps)

    def take(self, start: tuple[int, int], own: tuple[int, int], root: int) -> None:
        """Begins with another rank's epoch, and says so; the state is for the caller to take."""
        epoch, step = (int(number) for number in start)
        self._undo = training.begin_fit_at(self._model, epoch, step)
        self.say(own, (epoch, step), root)

    @staticmethod
    def say(own: tuple[int, int], start: tuple[int, int], root: int) -> None:
        """Says on this rank that it begins where another one does."""
        if membership.came_later:
            _logger.info("fit on rank %d begins at epoch %d, step %d.", process.rank(), *start)
        elif process.rank() != root:
            _logger.warning(
                "fit on rank %d continues from rank %d's state: it was at epoch %d, step %d here "
                "and at epoch %d, step %d there, or the numbers of updates differed. Pass the same "
                "initial_epoch on every rank. If only rank %d has BackupAndRestore, this is as "
                "intended.",
                process.rank(),
                root,
                *own,
                *start,
                root,
            )

    def undo(self) -> None:
        """Lets the model's next `fit` begin where Keras says."""
        if self._undo is not None:
            self._undo()
            self._undo = None


class LearningRates:
    """The learning rates of a model's optimizers, as the epochs of one `fit` begin."""

    def __init__(self) -> None:
        self._said: set[str] = set()
        # Of rank 0's state, that of before its callbacks, a rank that comes has got the rate.
        self._just_came = membership.came_later

    @staticmethod
    def packed(optimizers: Sequence[Optimizer]) -> list[int]:
        """Returns 64 bits for each optimizer's rate: NaN where it has none that is a number."""
        rates = []
        for optimizer in optimizers:
            try:
                rates.append(learning_rate.get(optimizer))
            except (AttributeError, TypeError, ValueError):
                rates.append(math.nan)
        return [int(bits) for bits in np.asarray(rates, np.float64).view(np.int64)]

    def take(
        self,
        optimizers: Sequence[Optimizer],
        packed: Sequence[int],
        root: int,
        epoch: int,
        quiet: bool = False,
    ) -> None:
        """Sets the rates to another rank's, where they differ, and says so once unless `quiet`."""
        quiet, self._just_came = quiet or self._just_came, False
        rates = np.asarray(packed, np.int64).view(np.float64)
        for optimizer, bits, rate in zip(optimizers, self.packed(optimizers), map(float, rates)):
            mine = float(np.int64(bits).view(np.float64))
            if mine == rate or math.isnan(mine) or math.isnan(rate):
                continue
            try:
                learning_rate.put(optimizer, rate)
            except ValueError:  # a schedule
                self._say("cannot take", "is a schedule of its own here", mine, rate, root, epoch)
            else:
                if not quiet:
                    self._say("takes", "was set here", mine, rate, root, epoch)

    def _say(self, does: str, why: str, mine: float, rate: float, root: int, epoch: int) -> None:
        if does in self._said:
            return
        self._said.add(does)
        _logger.warning(
            "fit on rank %d %s rank %d's learning rate, from epoch %d on: %g %s, and rank %d has "
            "%g. Pass the callbacks that set the learning rate on every rank, after "
            "MetricAverageCallback.",
            *(process.rank(), does, root, epoch, mine, why, root, rate),
        )
