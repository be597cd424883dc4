"""BestModelCheckpoint: rank 0 saves the model whenever it is the best so far."""

from __future__ import annotations

import importlib
import pathlib
from typing import Any

from tfhvd import _compat
from tfhvd.keras.callbacks.base import Callback
from tfhvd.process import rank


class BestModelCheckpoint(Callback):
    """Saves the model on rank 0 whenever a metric is better than ever before.

    Place it after `MetricAverageCallback`, so that it is the metric of all ranks that decides.

    Args:
        monitor: the metric, by its name in the logs.
        verbose: 1 for a line with each save.
        mode: "min", "max", or "auto" to go by the metric's name.
        save_freq: "epoch", or after how many batches to look.
        filepath: the file to save to, as for Keras' ModelCheckpoint. It may be set later, as an
            attribute, before training begins.
        save_weights_only: whether to save the weights only.

    Raises:
        ValueError: when training begins, if there is no `filepath`.

    Example:
        >>> best = hvd.callbacks.BestModelCheckpoint("loss", mode="min", filepath="best.keras")
        >>> model.fit(dataset, callbacks=[hvd.callbacks.MetricAverageCallback(), best])
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        verbose: int = 0,
        mode: str = "auto",
        save_freq: str | int = "epoch",
        filepath: str | pathlib.Path | None = None,
        save_weights_only: bool = False,
    ) -> None:
        super().__init__()
        self.filepath = filepath
        self.acts_on_batches = save_freq != "epoch"
        self._arguments = {
            "monitor": monitor,
            "verbose": verbose,
            "save_best_only": True,
            "save_weights_only": save_weights_only,
            "mode": mode,
            "save_freq": save_freq,
        }
        self._checkpoint: Any = None  # Keras' own, on rank 0 only

    @property
    def best(self) -> float | None:
        """The best value so far; None on ranks that do not save."""
        return None if self._checkpoint is None else self._checkpoint.best

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Makes the ModelCheckpoint of the Keras that the model is from."""
        if not self.filepath:
            raise ValueError(
                "BestModelCheckpoint saves to a file. Received: filepath=None. Expected: a path."
            )
        if rank() != 0:
            return
        if self._checkpoint is None:
            keras = importlib.import_module(_compat.keras_package(self.model))
            self._checkpoint = keras.callbacks.ModelCheckpoint(
                str(self.filepath), **self._arguments
            )
        self._checkpoint.set_params(self.params)
        self._checkpoint.set_model(self.model)
        self._checkpoint.on_train_begin(logs)

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Tells the ModelCheckpoint."""
        if self._checkpoint is not None:
            self._checkpoint.on_epoch_begin(epoch, logs)

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Tells the ModelCheckpoint."""
        if self._checkpoint is not None:
            self._checkpoint.on_train_batch_end(batch, logs)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Saves on rank 0, if the metric is the best so far."""
        if self._checkpoint is not None:
            self._checkpoint.on_epoch_end(epoch, logs)
