"""Start and LearningRates: `fit` begins at one epoch and with one learning rate on all ranks.

A callback may set either on one rank only: BackupAndRestore, which only rank 0 should have, or
ReduceLROnPlateau without an average of metrics. All ranks take the values of rank 0. Ranks that had
other values warn of this.
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
    """The epoch and the step at which a `fit` of a model begins.

    Attributes:
        initial_epoch: the argument of `fit`.
    """

    def __init__(self, model: Model) -> None:
        self.initial_epoch = 0
        self._model = model
        self._undo: Callable[[], None] | None = None

    def own(self, steps: int | None) -> tuple[int, int]:
        """Returns this rank's epoch, and the step in it.

        Args:
            steps: of an epoch, None if unknown.
        """
        return training.where_fit_begins(self._model, self.initial_epoch, steps)

    def take(self, start: tuple[int, int], own: tuple[int, int], root: int) -> None:
        """Begins with another rank's epoch and step, and logs it; the caller takes the state."""
        epoch, step = (int(number) for number in start)
        self._undo = training.begin_fit_at(self._model, epoch, step)
        self.say(own, (epoch, step), root)

    @staticmethod
    def say(own: tuple[int, int], start: tuple[int, int], root: int) -> None:
        """Logs on this rank that it begins at the epoch and step of another rank."""
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
        """Undoes `take`: Keras decides again at which epoch the model's next `fit` begins."""
        if self._undo is not None:
            self._undo()
            self._undo = None


class LearningRates:
    """The learning rates of a model's optimizers at the beginning of each epoch of one `fit`."""

    def __init__(self) -> None:
        self._said: set[str] = set()
        # A joining rank has received rank 0's rate from before the callbacks: no reason to warn.
        self._just_came = membership.came_later

    @staticmethod
    def packed(optimizers: Sequence[Optimizer]) -> list[int]:
        """Returns the 64 bits of each optimizer's rate; the rate is NaN if it is not a number."""
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
        """Sets the rates to those of another rank; warns once if they differed, unless `quiet`."""
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
