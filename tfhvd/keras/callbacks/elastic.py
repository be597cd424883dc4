"""ElasticCallback: calls a function of the program when the number of ranks has changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tfhvd.job import process
from tfhvd.keras.callbacks.base import Callback

if TYPE_CHECKING:
    from tfhvd.compat.types import Logs, Model


class ElasticCallback(Callback):
    """Calls a function when an epoch begins with more or fewer ranks than the one before.

    In an elastic job, ranks fail or join while a model trains. Values that depend on the number of
    ranks do not change until a function such as `on_change` sets them. All ranks that train the
    model need this callback; they take rank 0's learning rate in any case.

    Args:
        on_change: receives the model, the number of ranks in the epoch before, and the present one.

    Example:
        >>> def scale(model, before, after):
        ...     model.optimizer.learning_rate = model.optimizer.learning_rate * after / before
        >>> callbacks = [hvd.callbacks.ElasticCallback(on_change=scale)]
    """

    def __init__(self, on_change: Callable[[Model, int, int], object]) -> None:
        super().__init__()
        self.on_change = on_change
        self._size = 0

    def on_train_begin(self, logs: Logs = None) -> None:
        """Records the number of ranks."""
        self._size = process.size()

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Calls the function if the number of ranks has changed."""
        before, self._size = self._size, process.size()
        if self._size != before:
            self.on_change(self.model, before, self._size)
