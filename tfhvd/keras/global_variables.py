"""Keras in the style of TensorFlow 1: models in a graph, and the session that runs it."""

from __future__ import annotations

import tensorflow as tf

from tfhvd.compat import keras as keras_compat
from tfhvd.compat import private
from tfhvd.runtime import process_sets
from tfhvd.tf1 import session_hook


def broadcast_global_variables(
    root_rank: int, process_set: process_sets.ProcessSet = process_sets.global_process_set
) -> None:
    """Gives every rank's global variables the root's values, in the session that Keras uses.

    Keras uses the default session; without one, tf_keras uses a session that it makes itself, and
    initializes the variables that are not initialized yet. TensorFlow 2 has no global variables:
    use `BroadcastGlobalVariablesCallback` for `fit`, and in any other program
    `broadcast_variables(model.variables, root_rank)`.

    Args:
        root_rank: the rank that sends its values.
        process_set: the ranks that call this function.

    Raises:
        RuntimeError: if operations run eagerly, because there are no global variables then; or if
            there is no session.
        ValueError: if `root_rank` is not a rank.

    Example:
        >>> with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        ...     weights = tf.compat.v1.get_variable("weights", [3])
        ...     session.run(tf.compat.v1.global_variables_initializer())
        ...     hvd.broadcast_global_variables(0)
    """
    start = session_hook.broadcast_global_variables(root_rank, process_set)
    if keras_compat.TF_KERAS in keras_compat.imported_keras():
        session = private.session_of_tf_keras()
    else:
        session = tf.compat.v1.get_default_session()
    if session is None:
        raise RuntimeError(
            "broadcast_global_variables was called outside of a session; call it within "
            "`with tf.compat.v1.Session():`."
        )
    session.run(start)
