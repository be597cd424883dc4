"""SyncBatchNormalization: batch normalization over the batches of all ranks."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfhvd.runtime.process_sets import ProcessSet, checked_id, global_process_set


class SyncBatchNormalization(tf.keras.layers.BatchNormalization):
    """BatchNormalization of `tf.keras` with the moments of the joined batch of all ranks.

    Every sample counts once: ranks with unequal batches normalize as one rank would normalize the
    joined batch, and they have the gradients of this rank. This is so in training only, and all
    ranks must train the layer in the same steps. Moments are computed at least in float32.

    With tfhvd, `BatchNormalization(synchronized=True)` of Keras 3 and of tf_keras computes the same
    over all ranks, from the first distributed optimizer or tape on. A model with this layer can be
    opened without tfhvd.

    Args:
        axis: the dimension of the channels.
        process_set: the ranks whose batches count together. It is not saved with a model: a layer
            from a file takes all ranks.
        **kwargs: the other arguments of Keras' layer: `momentum`, `epsilon`, `center`, ...

    Raises:
        ValueError: for arguments that Keras' layer does not take with `synchronized=True`.

    Example:
        >>> model = tf.keras.Sequential([
        ...     tf.keras.layers.Conv2D(8, 3), hvd.SyncBatchNormalization(), tf.keras.layers.ReLU()
        ... ])
    """

    def __init__(
        self, axis: int = -1, process_set: ProcessSet = global_process_set, **kwargs: Any
    ) -> None:
        checked_id(process_set)
        kwargs["synchronized"] = True
        super().__init__(axis=axis, **kwargs)
        self.tfhvd_process_set = process_set


tf.keras.utils.register_keras_serializable(package="tfhvd")(SyncBatchNormalization)
