"""BestModelCheckpoint: the first rank saves the model whenever it is the best so far."""

from __future__ import annotations

import os
import pathlib
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tfhvd.compat import keras as keras_compat
from tfhvd.keras.callbacks.base import Callback
from tfhvd.keras.model_state import process_set_of
from tfhvd.runtime.process_sets import global_process_set

if TYPE_CHECKING:
    from tfhvd.compat.types import Logs


class BestModelCheckpoint(Callback, tf.keras.callbacks.ModelCheckpoint):
    """Saves the model on the first rank whenever a metric is better than ever before.

    It is a `tf.keras.callbacks.ModelCheckpoint` with `save_best_only=True`, and its attributes are
    those of one; on other ranks than the first of those that train the model (rank 0, or the
    first of the optimizer's process set) it does nothing. A model of the other Keras is saved by
    that one's ModelCheckpoint. Place it after `MetricAverageCallback`, so that it is the metric of
    all ranks that decides.

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
        self._arguments = {
            "monitor": monitor,
            "verbose": verbose,
            "save_best_only": True,
            "save_weights_only": save_weights_only,
            "mode": mode,
            "save_freq": save_freq,
        }
        # Keras looks at the end of a path, which may not be known yet.
        super().__init__(
            "best.weights.h5" if save_weights_only else "best.keras", **self._arguments
        )
        self.filepath = filepath
        self.acts_on_batches = save_freq != "epoch"
        self._saves = False
        self._of_other_keras: Any = None  # a ModelCheckpoint of the Keras that tf.keras is not

    def on_train_begin(self, logs: Logs = None) -> None:
        """Looks at the path, and begins on the rank that saves."""
        if not self.filepath:
            raise ValueError(
                "BestModelCheckpoint saves to a file, and has no path of it; pass filepath=<path>."
            )
        self.filepath = os.fspath(self.filepath)
        keras = keras_compat.keras_of(self.model)
        checkpoint = keras.callbacks.ModelCheckpoint(self.filepath, **self._arguments)
        self._saves = (process_set_of(self.model) or global_process_set).rank() == 0
        if not self._saves:
            return
        if isinstance(self, keras.callbacks.ModelCheckpoint):
            self._of_other_keras = None
        elif self._of_other_keras is None:
            self._of_other_keras = checkpoint
        if self._of_other_keras is not None:
            self._of_other_keras.set_params(self.params)
            self._of_other_keras.set_model(self.model)
        self._tell("on_train_begin", logs)

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Begins an epoch on the rank that saves."""
        self._tell("on_epoch_begin", epoch, logs)

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Saves after every so many batches, if the metric is the best so far."""
        self._tell("on_train_batch_end", batch, logs)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Saves, if the metric is the best so far."""
        self._tell("on_epoch_end", epoch, logs)

    def _tell(self, hook: str, *arguments: Any) -> None:
        """Calls a hook of whoever saves: this object as a ModelCheckpoint, or the other Keras'."""
        if not self._saves:
            return
        if self._of_other_keras is None:
            getattr(super(), hook)(*arguments)
            return
        getattr(self._of_other_keras, hook)(*arguments)
        self.best = self._of_other_keras.best
