"""MetricsCallback: writes the engine's metrics of each epoch for TensorBoard."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import tensorflow as tf

from tfhvd.keras.callbacks.base import Callback, require_tensorboard
from tfhvd.keras.callbacks.first_rank import FirstRank
from tfhvd.telemetry.metrics import Metrics, metrics

if TYPE_CHECKING:
    from tfhvd.compat.types import Logs, Model


class MetricsCallback(Callback):
    """Writes the increase of `hvd.metrics()` in each epoch, as scalars for TensorBoard.

    Give it to all ranks, without an `if`: it writes on the first of the ranks that train the model
    (rank 0, or the first of the optimizer's process set), and does nothing on the others. It writes
    the numbers of the first rank for each epoch: `tfhvd/tensors`, `tfhvd/bytes` and the other
    counts; `tfhvd/unlocked/REASON`; and in seconds `tfhvd/waits/rank_N` and `tfhvd/waits/unknown`.
    It calls no collective.

    Args:
        log_dir: the folder for TensorBoard; it may be the folder of the callback `TensorBoard`.

    Example:
        >>> callbacks = [
        ...     hvd.callbacks.TensorBoard("logs"),
        ...     hvd.callbacks.MetricsCallback("logs"),
        ... ]
    """

    def __init__(self, log_dir: str | os.PathLike[str]) -> None:
        require_tensorboard("MetricsCallback")
        super().__init__()
        self.log_dir = os.fspath(log_dir)
        self._first = FirstRank()
        self._writer: tf.summary.SummaryWriter | None = None
        self._before: dict[str, float] = {}

    def set_model(self, model: Model) -> None:
        """Takes the model, and finds out which rank writes for it."""
        super().set_model(model)
        self._first.find(model)

    def on_train_begin(self, logs: Logs = None) -> None:
        """Opens the file."""
        if self._first.here:
            folder = os.path.join(self.log_dir, "tfhvd")  # noqa: PTH118 (may be gs://...)
            self._writer = tf.summary.create_file_writer(folder)
            self._before = _scalars(metrics())

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Writes the increase in this epoch."""
        if self._first.has_come(self.model):
            self.on_train_begin()  # this rank has not counted the whole epoch; it writes the next
            return
        if self._writer is None:
            return
        now = _scalars(metrics())
        with self._writer.as_default():
            for name, value in now.items():
                tf.summary.scalar(f"tfhvd/{name}", value - self._before[name], step=epoch)
        self._writer.flush()
        self._before = now

    def on_train_end(self, logs: Logs = None) -> None:
        """Closes the file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def _scalars(now: Metrics) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, value in vars(now).items():
        if name == "unlocked":
            found.update({f"unlocked/{reason}": count for reason, count in value.items()})
        elif name == "waits_by_rank":
            found.update({f"waits/rank_{rank}": seconds for rank, seconds in value.items()})
        else:
            found["waits/unknown" if name == "waits_unknown" else name] = value
    return found
