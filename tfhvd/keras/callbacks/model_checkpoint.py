"""ModelCheckpoint: the first rank saves the model."""

from __future__ import annotations

import contextlib

import tensorflow as tf

from tfhvd.keras.callbacks.first_rank import FirstRankCallback
from tfhvd.keras.whole_files import saved_whole


class ModelCheckpoint(
    FirstRankCallback,
    tf.keras.callbacks.ModelCheckpoint,
    hooks=("on_train_begin", "on_epoch_begin", "on_train_batch_end", "on_epoch_end"),
):
    """Keras' `ModelCheckpoint`, which saves on the first rank only.

    Give it to all ranks, without an `if`: it saves on the first of the ranks that train the model
    (rank 0, or the first of the optimizer's process set). It does nothing on the others, which wait
    for the first rank at the end of the epoch. Place it after `MetricAverageCallback`, so that it
    monitors the metric of all ranks.

    A job that is killed while it saves leaves the previous file complete: `.keras` and `.h5` files
    are written under the name "unfinished-..." in the same folder, and then renamed.

    Args:
        args: positional arguments of Keras' ModelCheckpoint; the first is `filepath`.
        kwargs: named arguments of Keras' ModelCheckpoint: `monitor`, `save_best_only` and others.

    Example:
        >>> callbacks = [
        ...     hvd.callbacks.MetricAverageCallback(),
        ...     hvd.callbacks.ModelCheckpoint("{epoch:02d}.keras"),
        ... ]
    """

    keras_name = "ModelCheckpoint"
    results = ("best",)

    def _around_hook(self) -> contextlib.AbstractContextManager[None]:
        return saved_whole(self.model)
