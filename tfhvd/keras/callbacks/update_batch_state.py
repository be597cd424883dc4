"""UpdateBatchStateCallback: counts the batches of an epoch in an elastic state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfhvd.keras.callbacks.base import Callback

if TYPE_CHECKING:
    from tfhvd.compat.types import Logs


class UpdateBatchStateCallback(Callback):
    """Keeps the number of finished batches of the epoch in `state.batch`; 0 after the last batch.

    Args:
        state: of `hvd.elastic`, with an attribute `batch`.

    Example:
        >>> state = hvd.elastic.KerasState(model, batch=0)
        >>> callbacks = [hvd.elastic.UpdateBatchStateCallback(state)]
    """

    acts_on_batches = True

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Counts the batch."""
        self.state.batch = batch + 1

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Resets the count."""
        self.state.batch = 0
