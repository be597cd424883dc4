"""UpdateEpochStateCallback: counts epochs in an elastic state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfhvd.keras.callbacks.base import Callback

if TYPE_CHECKING:
    from tfhvd.compat.types import Logs


class UpdateEpochStateCallback(Callback):
    """Keeps the number of finished epochs of all `fit` calls in `state.epoch`.

    `fit` counts from 0 each time: pass `epochs=total - state.epoch`.

    Args:
        state: of `hvd.elastic`, with an attribute `epoch`.

    Example:
        >>> state = hvd.elastic.KerasState(model, epoch=0)
        >>> callbacks = [hvd.elastic.UpdateEpochStateCallback(state)]
    """

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self._before = 0

    def on_train_begin(self, logs: Logs = None) -> None:
        """Records the number of epochs of the earlier calls."""
        self._before = self.state.epoch

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Counts the epoch."""
        self.state.epoch = self._before + epoch + 1
