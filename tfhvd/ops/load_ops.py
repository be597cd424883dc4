"""load_ops: makes TensorFlow know tfhvd's operations."""

from __future__ import annotations

from tfhvd.runtime.native import load_tf_ops


def load_ops() -> None:
    """Registers tfhvd's operations with TensorFlow, as the first collective does otherwise.

    Needed before a SavedModel, or another graph, is loaded that has collectives in it; also in a
    program that does not train, where `init` may come later or never.

    Raises:
        ImportError: the operations are not built, or were built for another TensorFlow; the text
            says what to type.

    Example:
        >>> hvd.load_ops()
        >>> model = tf.saved_model.load("exported")  # doctest: +SKIP
    """
    load_tf_ops()
