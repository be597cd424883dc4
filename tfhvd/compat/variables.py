"""Variables of any package: their names, and the tf.Variable inside them."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tensorflow as tf

    from tfhvd.compat.types import TensorLike, Variable


def tf_variable(variable: Variable | tf.Tensor) -> tf.Variable | tf.Tensor:
    """Returns the tf.Variable inside a Keras 3 variable; any other object itself."""
    value = getattr(variable, "value", None)
    return variable if value is None or callable(value) else value


def key_of(variable: Variable) -> int:
    """Identifies a live variable; a Keras 3 variable and its tf.Variable have the same key."""
    return id(tf_variable(variable))


def variable_name(variable: Variable | tf.Tensor) -> str | None:
    """Returns a variable's path (Keras 3) or name without ":0"; None if it has no name."""
    try:
        name = getattr(variable, "path", None) or variable.name
    except (AttributeError, ValueError):  # Tensor.name raises in eager mode
        return None
    return name.partition(":")[0] if isinstance(name, str) else None


def state_variable(
    initial: TensorLike | Callable[[], tf.Tensor], dtype: tf.DType, name: str
) -> tf.Variable:
    """Makes a variable for tfhvd's state, also while a function is traced.

    A tf.function allows new variables only in its first call, also in `tf.init_scope`. It notices
    them by a hook of the thread, so this function makes the variable in another thread. In a graph
    with a session the variable belongs to the graph, and the graph's user initializes it.
    """
    import tensorflow as tf

    def make() -> tf.Variable:
        return tf.Variable(initial, trainable=False, dtype=dtype, name=f"tfhvd_{name}")

    with tf.init_scope():
        if not tf.executing_eagerly():
            return make()
    with concurrent.futures.ThreadPoolExecutor(1) as elsewhere:
        return elsewhere.submit(make).result()
