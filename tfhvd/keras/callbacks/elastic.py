"""ElasticCallback: tells a program between two epochs that other ranks take part."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tfhvd.job import process
from tfhvd.keras.callbacks.base import Callback

if TYPE_CHECKING:
    from tfhvd.compat.types import Logs, Model


class ElasticCallback(Callback):
    """Calls a function when an epoch begins with more or fewer ranks than the one before.

    In an elastic job ranks are lost, or come, while a model trains. What depends on their number
    stays as it was until a function like this one sets it. All ranks that train the model need it;
    they take rank 0's learning rate in any case.

    Args:
        on_change: called with the model, the number of ranks in the epoch before, and that of now.

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
        """Takes note of how many ranks begin."""
        self._size = process.size()

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Calls the function where there are others than before."""
        before, self._size = self._size, process.size()
        if self._size != before:
            self.on_change(self.model, before, self._size)
