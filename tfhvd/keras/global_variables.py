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

    That is the default session or, where there is none, tf_keras' own; what tf_keras has not
    initialized yet is initialized. In TensorFlow 2 there are no global variables: there
    `BroadcastGlobalVariablesCallback` gives the ranks of `fit` one state, and
    `broadcast_variables(model.variables, root_rank)` those of any program.

    Args:
        root_rank: the rank whose values are taken.
        process_set: the ranks that take part.

    Raises:
        RuntimeError: where operations run eagerly, and there are no global variables; and where
            there is no session.
        ValueError: if the root is no rank.

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
