"""CommitStateCallback: commits an elastic state while a model trains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfhvd.keras.callbacks.base import Callback

if TYPE_CHECKING:
    from tfhvd.compat.types import Logs


class CommitStateCallback(Callback):
    """Commits an elastic state after every so many batches, and at the end of every epoch.

    All ranks that train the model need it.

    Args:
        state: of `hvd.elastic`.
        batches_per_commit: the number of batches between commits.

    Raises:
        HostsUpdatedInterrupt: from `fit`, for `hvd.elastic.run`, after ranks have failed or joined.

    Example:
        >>> state = hvd.elastic.KerasState(model, epoch=0)
        >>> callbacks = [hvd.elastic.CommitStateCallback(state, batches_per_commit=10)]
    """

    acts_on_batches = True
    meets_all_ranks = True

    def __init__(self, state: Any, batches_per_commit: int = 1) -> None:
        super().__init__()
        self.state = state
        self.batches_per_commit = batches_per_commit
        self._batches = 0

    def on_train_begin(self, logs: Logs = None) -> None:
        """Resets the count of batches."""
        self._batches = 0

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Commits every `batches_per_commit` batches."""
        self._batches += 1
        if self._batches % self.batches_per_commit == 0:
            self.state.commit()

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Commits at the end of the epoch."""
        self.state.commit()
