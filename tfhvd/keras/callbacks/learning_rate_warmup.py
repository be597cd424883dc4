"""LearningRateWarmupCallback: raises the learning rate from that of one rank to that of all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfhvd.keras.callbacks.learning_rate_schedule import LearningRateScheduleCallback
from tfhvd.keras.wrap import learning_rate
from tfhvd.keras.wrap.model_state import process_set_of
from tfhvd.runtime.process_sets import ProcessSet, global_process_set

if TYPE_CHECKING:
    from tfhvd.compat.types import Logs


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """Raises the learning rate from `initial_lr / size()` to `initial_lr` over the first epochs.

    The joined batch of all ranks is `size()` times as large as one rank's, and allows a rate higher
    by that factor, but not from the beginning (Goyal et al., 2017). The rate grows by the same
    amount with every batch.

    Args:
        initial_lr: the learning rate after the warm-up: the rate for one rank times `size()`.
        warmup_epochs: the number of epochs of the warm-up.
        momentum_correction: whether the momentum of SGD and RMSprop is rescaled when the rate
            changes.
        steps_per_epoch: the number of batches of an epoch, if `fit` cannot know it.
        verbose: 1 for a line on rank 0 when the warm-up is over.

    Example:
        >>> rate = 0.01 * hvd.size()
        >>> model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(rate)), loss="mse")
        >>> model.fit(dataset, callbacks=[hvd.callbacks.LearningRateWarmupCallback(rate)])
    """

    def __init__(
        self,
        initial_lr: float,
        warmup_epochs: int = 5,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            initial_lr,
            self._fraction,
            start_epoch=0,
            end_epoch=warmup_epochs,
            staircase=False,
            momentum_correction=momentum_correction,
            steps_per_epoch=steps_per_epoch,
        )
        self.warmup_epochs = warmup_epochs
        self.verbose = verbose

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Sets the final rate after the last epoch of the warm-up."""
        if epoch == self.warmup_epochs - 1:
            self._set(self.warmup_epochs)
            if self.verbose and self._ranks().rank() == 0:
                rate = learning_rate.get(self.model.optimizer)
                print(f"Epoch {epoch + 1}: the warm-up is over, the learning rate is {rate:g}.")
        super().on_epoch_end(epoch, logs)

    def _fraction(self, epoch: float) -> float:
        """Returns the fraction of `initial_lr` at an epoch: 1/size at 0, 1 at `warmup_epochs`."""
        size = self._ranks().size()
        return (1 + (size - 1) * epoch / self.warmup_epochs) / size

    def _ranks(self) -> ProcessSet:
        """Returns the ranks that train the model, or all ranks if this is unknown yet."""
        return process_set_of(self.model) or global_process_set
