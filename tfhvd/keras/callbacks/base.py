"""What tfhvd's callbacks share: they work in the `fit` of Keras 3 and of tf_keras alike."""

from __future__ import annotations

import tensorflow as tf


class Callback(tf.keras.callbacks.Callback):
    """A `tf.keras` callback that the other Keras can call too.

    Attributes:
        acts_on_batches: whether the class has a hook for training batches; tf_keras asks.
    """

    acts_on_batches = False
    _supports_tf_logs = (
        True  # tf_keras then hands on tensors, instead of fetching each batch's numbers.
    )

    def _implements_train_batch_hooks(self) -> bool:
        return self.acts_on_batches

    def _implements_test_batch_hooks(self) -> bool:
        return False

    def _implements_predict_batch_hooks(self) -> bool:
        return False
