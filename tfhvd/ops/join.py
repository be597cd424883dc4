"""join: a rank that has no data left lets the others continue."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tfhvd.job import process
from tfhvd.runtime import process_sets
from tfhvd.runtime.native import load_native

_ended: set[int] = set()  # the numbers of the process sets that have joined


def join(
    process_set: process_sets.ProcessSet = process_sets.global_process_set,
) -> int | tf.Tensor:
    """Waits until every rank has joined, and helps the ranks that continue.

    A rank calls it when it has run out of data before others. Until all ranks have, it takes part
    in their collectives with what changes nothing: in an allreduce by Sum, Average or Adasum with
    zeros (an average is still over the number of all ranks), by Product with ones, by Min or Max
    with the largest or lowest value, in an allgather with no rows, in a broadcast of another rank
    and in a barrier. What needs its data (a broadcast from it, reducescatter, alltoall, a
    prescale_factor of Min, Max or Product, changes of process sets) fails on the others meanwhile.

    Keras' `fit` with a `DistributedOptimizer` does this by itself.

    In a graph of TensorFlow 1 it waits when a session runs what it returns, by itself: a run in
    which the same rank has other collectives is an error, or hangs. A `tf.function` cannot call it,
    for there it would begin while collectives of the same function are in progress.

    Args:
        process_set: the ranks that have to join; this one helps in collectives of that set, and of
            every set after joining the global one.

    Returns:
        The rank that joined last: the one that has trained longest, whose state may be broadcast.
        In a graph a tensor of it, int32 without dimensions.

    Raises:
        NotInitializedError: before `init`.
        RuntimeError: in a `tf.function`.
        ValueError: if this rank is not in the process set.
        PeerLostError: if a rank has failed or left; in a session `tf.errors.UnknownError`.

    Example:
        >>> for batch in my_batches:  # more on some ranks than on others
        ...     train_step(batch)
        >>> last = hvd.join()
        >>> hvd.broadcast_variables(model.variables, root_rank=last)
    """
    process.take_part()
    number = process_sets.checked_id(process_set)
    _ended.add(number)
    if tf.executing_eagerly():
        return load_native().join(number)
    if tf.inside_function():
        raise RuntimeError(
            "hvd.join() cannot be called in a tf.function, or in code that Keras or tf.data make "
            "one of: it waits for the steps of other ranks. Call it after the last step."
        )
    last = tf.numpy_function(lambda: np.int32(load_native().join(number)), [], tf.int32)
    last.set_shape([])
    return last


def have_joined(process_set: process_sets.ProcessSet) -> bool:
    """Whether ranks of a set have called `join`: their numbers of steps may be unequal since."""
    return not _ended.isdisjoint({0, process_set.process_set_id})
