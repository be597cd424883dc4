"""BestModelCheckpoint: the first rank saves the model whenever it is the best so far."""

from __future__ import annotations

import os
import pathlib
from typing import TYPE_CHECKING

from tfhvd.compat import keras as keras_compat
from tfhvd.keras.callbacks.model_checkpoint import ModelCheckpoint

if TYPE_CHECKING:
    from tfhvd.compat.types import Logs


class BestModelCheckpoint(ModelCheckpoint):
    """Saves the model on the first rank whenever a metric is better than ever before.

    It is a `tf.keras.callbacks.ModelCheckpoint` with `save_best_only=True`, and has its attributes.
    It saves on the first of the ranks that train the model (rank 0, or the first of the optimizer's
    process set) and does nothing on the others. The ModelCheckpoint of the other Keras saves the
    models of the other Keras. Place this callback after `MetricAverageCallback`, so that the metric
    of all ranks decides. As with `ModelCheckpoint`, a file is always complete.

    Args:
        monitor: the metric, by its name in the logs.
        verbose: 1 for a line with each save.
        mode: "min", "max", or "auto" to go by the metric's name.
        save_freq: "epoch", or the number of batches after which it checks the metric.
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
        # Keras checks the suffix of the path, and the path may be unknown yet.
        super().__init__(
            "best.weights.h5" if save_weights_only else "best.keras",
            monitor=monitor,
            verbose=verbose,
            save_best_only=True,
            save_weights_only=save_weights_only,
            mode=mode,
            save_freq=save_freq,
        )
        self.filepath = filepath

    def on_train_begin(self, logs: Logs = None) -> None:
        """Checks the path on every rank, and begins on the rank that saves."""
        if not self.filepath:
            raise ValueError("BestModelCheckpoint has no file to save to; pass filepath=<path>.")
        self.filepath = os.fspath(self.filepath)
        # Keras checks the path when it makes a ModelCheckpoint.
        keras = keras_compat.keras_of(self.model)
        keras.callbacks.ModelCheckpoint(self.filepath, **self._arguments[1])
        if self._of_other_keras is not None:
            self._of_other_keras.filepath = self.filepath
        super().on_train_begin(logs)
