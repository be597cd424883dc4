"""Variables, whichever package made them: what they are called, and the tf.Variable in them."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tensorflow as tf

    from tfhvd.compat.types import TensorLike, Variable


def tf_variable(variable: Variable | tf.Tensor) -> tf.Variable | tf.Tensor:
    """Gives the tf.Variable inside a Keras 3 variable; anything else as it is."""
    value = getattr(variable, "value", None)
    return variable if value is None or callable(value) else value


def key_of(variable: Variable) -> int:
    """Identifies a variable while it lives; the same for a Keras 3 variable and its tf.Variable."""
    return id(tf_variable(variable))


def variable_name(variable: Variable | tf.Tensor) -> str | None:
    """Gives a variable's path (Keras 3) or name without ":0"; None for what has no name."""
    try:
        name = getattr(variable, "path", None) or variable.name
    except (AttributeError, ValueError):  # Tensor.name means nothing in eager mode, and raises.
        return None
    return name.partition(":")[0] if isinstance(name, str) else None


def state_variable(
    initial: TensorLike | Callable[[], tf.Tensor], dtype: tf.DType, name: str
) -> tf.Variable:
    """Makes a variable for tfhvd's own state, whatever is being traced.

    A tf.function lets variables be made on its first call only, also in `tf.init_scope`, because it
    asks for them by a hook of the thread; hence another thread. In a graph with a session the
    variable is the graph's, for its user to initialize.
    """
    import tensorflow as tf

    def make() -> tf.Variable:
        return tf.Variable(initial, trainable=False, dtype=dtype, name=f"tfhvd_{name}")

    with tf.init_scope():
        if not tf.executing_eagerly():
            return make()
    with concurrent.futures.ThreadPoolExecutor(1) as elsewhere:
        return elsewhere.submit(make).result()
