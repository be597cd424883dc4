"""Programs in the style of TensorFlow 1: a graph, and sessions that run it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tensorflow as tf

from tfhvd.ops import broadcast_
from tfhvd.runtime import process_sets

if TYPE_CHECKING:
    from tfhvd.compat.types import Session


def broadcast_global_variables(
    root_rank: int, process_set: process_sets.ProcessSet = process_sets.global_process_set
) -> tf.Operation:
    """Makes an operation that gives every rank's global variables the root's values.

    Args:
        root_rank: the rank whose values are taken.
        process_set: the ranks that take part.

    Returns:
        The operation, for `session.run`, after the variables are initialized.

    Raises:
        RuntimeError: where operations run eagerly, and there are no global variables.
        ValueError: if the root is no rank.

    Example:
        >>> with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        ...     weights = tf.compat.v1.get_variable("weights", [3])
        ...     start = hvd.broadcast_global_variables(0)
        ...     session.run(tf.compat.v1.global_variables_initializer())
        ...     session.run(start)
    """
    if tf.executing_eagerly():
        raise RuntimeError(
            "broadcast_global_variables works in graphs only, since eager execution has no global "
            "variables; call hvd.broadcast_variables(model.variables, root_rank) instead."
        )
    variables = tf.compat.v1.global_variables()
    name = "broadcast_global_variables"
    return tf.group(*broadcast_(variables, root_rank, name=name, process_set=process_set))


class BroadcastGlobalVariablesHook(tf.compat.v1.train.SessionRunHook):
    """Gives all ranks one rank's global variables, when a session is made: initialized or restored.

    Args:
        root_rank: the rank whose values are taken.
        device: the device on which the variables are broadcast, "" for where they are.
        process_set: the ranks that take part.

    Example:
        >>> with tf.Graph().as_default():
        ...     weight = tf.compat.v1.get_variable("weight", initializer=1.0)
        ...     sgd = tf.compat.v1.train.GradientDescentOptimizer(0.1 * hvd.size())
        ...     train_op = hvd.DistributedOptimizer(sgd).minimize(weight**2)
        ...     hooks = [hvd.BroadcastGlobalVariablesHook(0)]
        ...     with tf.compat.v1.train.MonitoredTrainingSession(hooks=hooks) as session:
        ...         session.run(train_op)
    """

    def __init__(
        self,
        root_rank: int,
        device: str = "",
        process_set: process_sets.ProcessSet = process_sets.global_process_set,
    ) -> None:
        self.root_rank = root_rank
        self.device = device
        self.process_set = process_set
        self._graph: tf.Graph | None = None  # for which the operation is
        self._start: tf.Operation | None = None

    def begin(self) -> None:
        """Adds the operation to the graph."""
        graph = tf.compat.v1.get_default_graph()
        if self._graph is not graph:
            with tf.device(self.device or None):
                self._start = broadcast_global_variables(self.root_rank, self.process_set)
            self._graph = graph

    def after_create_session(self, session: Session, coord: tf.train.Coordinator) -> None:
        """Runs it."""
        session.run(self._start)
