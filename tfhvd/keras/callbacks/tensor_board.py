"""TensorBoard: the first rank writes logs for TensorBoard."""

from __future__ import annotations

import tensorflow as tf

from tfhvd.keras.callbacks.base import require_tensorboard
from tfhvd.keras.callbacks.first_rank import FirstRankCallback


class TensorBoard(
    FirstRankCallback,
    tf.keras.callbacks.TensorBoard,
    hooks=(
        "on_train_begin",
        "on_train_end",
        "on_epoch_begin",
        "on_epoch_end",
        "on_train_batch_begin",
        "on_train_batch_end",
        "on_test_begin",
        "on_test_end",
        "on_test_batch_begin",
        "on_test_batch_end",
    ),
):
    """Keras' `TensorBoard`, which writes on the first rank only.

    Give it to all ranks, without an `if`: it writes on the first of the ranks that train the model
    (rank 0, or the first of the optimizer's process set) and does nothing on the others. Place it
    after `MetricAverageCallback`: the metrics of epochs are then the metrics of all ranks. The
    metrics of batches (`update_freq`) and the profiler's data are from the first rank only.

    Args:
        args: positional arguments of Keras' TensorBoard; the first is `log_dir`.
        kwargs: named arguments of Keras' TensorBoard: `update_freq`, `profile_batch` and others.

    Example:
        >>> callbacks = [
        ...     hvd.callbacks.MetricAverageCallback(),
        ...     hvd.callbacks.TensorBoard("logs"),
        ... ]
    """

    keras_name = "TensorBoard"

    def __init__(self, *args: object, **kwargs: object) -> None:
        require_tensorboard("TensorBoard")
        super().__init__(*args, **kwargs)
