"""What tfhvd's callbacks share: they work in the `fit` of Keras 3 and of tf_keras alike."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfhvd.compat import installed


class Callback(tf.keras.callbacks.Callback):
    """A `tf.keras` callback that the other Keras can call too.

    Attributes:
        acts_on_batches: whether the class has a hook for training batches; tf_keras asks.
        meets_all_ranks: whether all ranks that train must have it.
        comes_last: whether it is called after all callbacks of the user.
        saves_before_stop: whether its `on_train_end` saves where a job continues that is stopped.
        awaits_end_of_epoch: whether it has to wait for the end of the epoch to do so.
        has_restored: whether it has given each rank its state of an earlier job, which is whole.
    """

    acts_on_batches = False
    meets_all_ranks = False
    comes_last = False
    saves_before_stop = False
    awaits_end_of_epoch = False
    has_restored = False
    _supports_tf_logs = (
        True  # tf_keras then hands on tensors, instead of fetching each batch's numbers.
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)  # of a callback of Keras that a class is besides
        from tfhvd.keras.fit.patch import keep_imported_in_step  # It adds callbacks of its own.

        keep_imported_in_step()

    def _implements_train_batch_hooks(self) -> bool:
        return self.acts_on_batches

    def _implements_test_batch_hooks(self) -> bool:
        return False

    def _implements_predict_batch_hooks(self) -> bool:
        return False


def require_tensorboard(callback: str) -> None:
    """Raises ImportError, with what to type, where a callback could write nothing.

    TensorFlow itself would say so in the first step only, on one rank.

    Args:
        callback: its name.
    """
    installed.require("tensorboard", "tensorboard", callback)
