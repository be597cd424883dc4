"""Callback: the base class of tfhvd's callbacks, which work in `fit` of Keras 3 and of tf_keras."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfhvd.compat import installed


class Callback(tf.keras.callbacks.Callback):
    """A `tf.keras` callback that the other Keras can call, too.

    Attributes:
        acts_on_batches: whether the class has a hook for training batches; tf_keras asks.
        meets_all_ranks: whether all ranks that train must have the callback.
        comes_last: whether it is called after all callbacks of the user.
        saves_before_stop: whether its `on_train_end` saves a state from which a stopped job can
            continue.
        awaits_end_of_epoch: whether it can save this state only at the end of the epoch.
        has_restored: whether it has given each rank the rank's complete state of an earlier job.
    """

    acts_on_batches = False
    meets_all_ranks = False
    comes_last = False
    saves_before_stop = False
    awaits_end_of_epoch = False
    has_restored = False
    _supports_tf_logs = (
        True  # tf_keras then passes tensors, and need not fetch the numbers of each batch.
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)  # of Keras' callback, if a class also inherits from one
        from tfhvd.keras.fit.patch import keep_imported_in_step  # It imports this module.

        keep_imported_in_step()

    def _implements_train_batch_hooks(self) -> bool:
        return self.acts_on_batches

    def _implements_test_batch_hooks(self) -> bool:
        return False

    def _implements_predict_batch_hooks(self) -> bool:
        return False


def require_tensorboard(callback: str) -> None:
    """Raises ImportError if TensorBoard is not installed; the message says what to type.

    TensorFlow itself would raise an error only in the first step, on one rank.

    Args:
        callback: the name of the callback that needs TensorBoard.
    """
    installed.require("tensorboard", "tensorboard", callback)
