"""LearningRateScheduleCallback: sets the learning rate by epoch, or by batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tfhvd.keras.callbacks.base import Callback
from tfhvd.keras.wrap import learning_rate

if TYPE_CHECKING:
    from tfhvd.compat.types import Logs


class LearningRateScheduleCallback(Callback):
    """Sets the learning rate to `initial_lr * multiplier` from one epoch to another.

    Several of these may follow each other in a list of callbacks, each for its own epochs.

    Args:
        initial_lr: the learning rate that is multiplied.
        multiplier: a number, or a function of the epoch that returns a number. The epoch is an int
            with `staircase`, and otherwise a float that grows with each batch.
        start_epoch: the first epoch of this schedule, from 0.
        end_epoch: the first epoch after this schedule; None for no end.
        staircase: whether the rate changes at the beginning of an epoch only, as it always does
            with a constant multiplier.
        momentum_correction: whether the momentum of SGD and RMSprop is rescaled when the rate
            changes.
        steps_per_epoch: the number of batches of an epoch, if `fit` cannot know it.

    Raises:
        ValueError: when training begins, if the optimizer's learning rate is a schedule, or if the
            batches of an epoch are needed and not known.

    Example:
        >>> # A tenth of the rate from epoch 30 on, a hundredth from epoch 60 on.
        >>> callbacks = [
        ...     hvd.callbacks.LearningRateScheduleCallback(rate, 0.1, start_epoch=30, end_epoch=60),
        ...     hvd.callbacks.LearningRateScheduleCallback(rate, 0.01, start_epoch=60),
        ... ]
    """

    acts_on_batches = True

    def __init__(
        self,
        initial_lr: float,
        multiplier: float | Callable[[float], float],
        start_epoch: int = 0,
        end_epoch: int | None = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
    ) -> None:
        super().__init__()
        if initial_lr is None:
            raise ValueError(
                f"{type(self).__name__} multiplies initial_lr, which is None; pass "
                "initial_lr=<learning rate>."
            )
        self.initial_lr = initial_lr
        self.start_epoch = start_epoch
        self.end_epoch = end_epoch
        self.staircase = staircase or not callable(multiplier)
        self.momentum_correction = momentum_correction
        self.steps_per_epoch = steps_per_epoch
        self.multiplier = multiplier if callable(multiplier) else lambda epoch: multiplier
        self._epoch = 0

    def on_train_begin(self, logs: Logs = None) -> None:
        """Checks that the learning rate can be set, and that the batches of an epoch are known."""
        optimizer = self.model.optimizer
        learning_rate.put(optimizer, learning_rate.get(optimizer))  # raises if it cannot be set
        if not self.staircase:
            self.steps_per_epoch = self.steps_per_epoch or (self.params or {}).get("steps")
            if not self.steps_per_epoch:
                raise ValueError(
                    f"{type(self).__name__} changes the learning rate with each batch, and fit "
                    "does not know how many batches an epoch has; pass "
                    f"{type(self).__name__}(..., steps_per_epoch=<number>)."
                )

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Records the epoch."""
        self._epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """Sets the learning rate of the batch."""
        if not self._holds(self._epoch):
            return
        if not self.staircase:
            assert self.steps_per_epoch is not None
            self._set(self._epoch + batch / self.steps_per_epoch)
        elif batch == 0:
            self._set(self._epoch)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Logs the learning rate as "lr"."""
        if logs is not None:
            logs["lr"] = learning_rate.get(self.model.optimizer)

    def _holds(self, epoch: int) -> bool:
        return self.start_epoch <= epoch and (self.end_epoch is None or epoch < self.end_epoch)

    def _set(self, epoch: float) -> None:
        rate = self.initial_lr * self.multiplier(epoch)
        learning_rate.put(self.model.optimizer, rate, self.momentum_correction)
