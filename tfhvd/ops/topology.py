"""The rank and size of this process, as tensors: read when a graph runs, not when it is made."""

from __future__ import annotations

import tensorflow as tf

from tfhvd.ops import _kernels
from tfhvd.runtime.membership import membership
from tfhvd.runtime.native import load_tf_ops


def rank_op(name: str | None = None) -> tf.Tensor:
    """Returns this process's rank as an int32 scalar.

    Args:
        name: of the operation.

    Raises:
        NotInitializedError: before `init`.
        tf.errors.FailedPreconditionError: in a function that runs after `shutdown`.

    Example:
        >>> file = tf.strings.join(["part-", tf.strings.as_string(hvd.rank_op())])
    """
    return _value("rank", 0, name)


def local_rank_op(name: str | None = None) -> tf.Tensor:
    """Returns this process's number on its host as an int32 scalar.

    Args:
        name: of the operation.

    Raises:
        NotInitializedError: before `init`.
        tf.errors.FailedPreconditionError: in a function that runs after `shutdown`.

    Example:
        >>> seed = 42 + hvd.local_rank_op()
    """
    return _value("local_rank", 0, name)


def size_op(process_set_id: int = 0, name: str | None = None) -> tf.Tensor:
    """Returns the number of ranks of a process set as an int32 scalar.

    Args:
        process_set_id: the number of the set; 0 for all ranks of the job.
        name: of the operation.

    Raises:
        NotInitializedError: before `init`.
        tf.errors.FailedPreconditionError: in a function that runs after `shutdown`.
        tf.errors.InvalidArgumentError: if there is no such set.

    Example:
        >>> mean = hvd.allreduce(x, op=hvd.Sum) / tf.cast(hvd.size_op(), x.dtype)
    """
    return _value("size", process_set_id, name)


def size_when_run(process_set_id: int) -> int | tf.Tensor:
    """Returns how many ranks a set has, in a graph of an elastic job when it runs, not when traced.

    Compiled functions are for the ranks that there are when they are traced.

    Args:
        process_set_id: the number of the set; 0 for all ranks of the job.
    """
    return _kernels.size(process_set_id)


def local_size_op(name: str | None = None) -> tf.Tensor:
    """Returns the number of ranks on this host as an int32 scalar.

    Args:
        name: of the operation.

    Raises:
        NotInitializedError: before `init`.
        tf.errors.FailedPreconditionError: in a function that runs after `shutdown`.

    Example:
        >>> readers = 16 // hvd.local_size_op()
    """
    return _value("local_size", 0, name)


def process_set_included_op(process_set_id: int = 0, name: str | None = None) -> tf.Tensor:
    """Returns whether this process is in a process set: an int32 scalar, 1 or 0.

    Args:
        process_set_id: the number of the set; 0 for all ranks of the job.
        name: of the operation.

    Raises:
        NotInitializedError: before `init`.
        tf.errors.FailedPreconditionError: in a function that runs after `shutdown`.
        tf.errors.InvalidArgumentError: if there is no such set.

    Example:
        >>> weight = tf.cast(hvd.process_set_included_op(even.process_set_id), tf.float32)
    """
    return _value("included", process_set_id, name)


def _value(what: str, process_set_id: int, name: str | None) -> tf.Tensor:
    membership.take_part()
    return load_tf_ops().tfhvd_topology_value(what=what, process_set_id=process_set_id, name=name)


tf.no_gradient("TfhvdTopologyValue")
