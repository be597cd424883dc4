"""barrier: waits until every rank has reached the same point."""

from __future__ import annotations

import contextlib

import tensorflow as tf

from tfhvd.job import process
from tfhvd.ops import _kernels
from tfhvd.ops.names import name_of
from tfhvd.runtime import process_sets
from tfhvd.runtime.elastic.replay import comers


def barrier(
    process_set: process_sets.ProcessSet = process_sets.global_process_set,
    name: str | None = None,
) -> None:
    """Waits until every rank has called it.

    In a `tf.function` it has its place among the stateful operations (unordered assignments are not
    among them). A rank that joins an elastic job waits at a barrier, until its admission, only for
    the ranks that join on its host with it: the others have passed the barrier.

    Args:
        process_set: the ranks that take part.
        name: the name of the operation, the same on every rank.

    Raises:
        NotInitializedError: before `init`.
        tf.errors.AbortedError: if a rank has failed or left.

    Example:
        >>> if hvd.rank() == 0:
        ...     download_data()
        >>> hvd.barrier()
    """
    set_id = process_sets.checked_id(process_set)
    now = tf.executing_eagerly()
    with comers.do_without() if now else contextlib.nullcontext(True) as takes_part:
        if takes_part:
            process.take_part()
            _kernels.barrier(name_of("barrier", name, set_id=set_id), set_id)
        else:
            comers.wait_for_host()


tf.no_gradient("TfhvdBarrier")
