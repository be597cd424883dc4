"""CSVLogger: the first rank writes the metrics of each epoch to a file."""

from __future__ import annotations

import tensorflow as tf

from tfhvd.keras.callbacks.first_rank import FirstRankCallback


class CSVLogger(
    FirstRankCallback,
    tf.keras.callbacks.CSVLogger,
    hooks=("on_train_begin", "on_epoch_end", "on_train_end"),
):
    """Keras' `CSVLogger`, which writes on the first rank only.

    Give it to all ranks, without an `if`: it writes on the first of the ranks that train the model
    (rank 0, or the first of the optimizer's process set) and does nothing on the others. Place it
    after `MetricAverageCallback`, so that it writes the metrics of all ranks.

    Args:
        args: positional arguments of Keras' CSVLogger: `filename`, `separator`, `append`.
        kwargs: named arguments of Keras' CSVLogger.

    Example:
        >>> callbacks = [
        ...     hvd.callbacks.MetricAverageCallback(),
        ...     hvd.callbacks.CSVLogger("training.csv"),
        ... ]
    """

    keras_name = "CSVLogger"
    _supports_tf_logs = False  # It writes the logs as text.
