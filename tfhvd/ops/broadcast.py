"""broadcast: the root's tensor on every rank."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfhvd import process, process_sets
from tfhvd.ops import _kernels
from tfhvd.ops._checks import check_root, to_tensor
from tfhvd.ops._names import name_of, name_of_gradient
from tfhvd.ops.reduce_op import Sum


def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: process_sets.ProcessSet = process_sets.global_process_set,
) -> tf.Tensor:
    """Returns the root's tensor on every rank.

    Differentiable: the root gets the sum of all ranks' gradients, the others zeros.

    Args:
        tensor: of any shape, the same on every rank; the values matter on the root only. Types:
            uint8, int8, int32, int64, float16, bfloat16, float32, float64, bool.
        root_rank: the rank whose values are taken, the same on every rank; its number in the job,
            also with a process set.
        name: the collective's identity: ranks meet by it. Made from the tensor's name if not given.
        ignore_name_scope: taken for Horovod's sake: name scopes never change a given name.
        process_set: the ranks that take part.

    Returns:
        A tensor of the same shape and type.

    Raises:
        NotInitializedError: before `init`.
        TypeError: for a type that does not travel.
        ValueError: for a root that is no rank.
        tf.errors.InvalidArgumentError: if shape, type or root differ between the ranks.
        tf.errors.AbortedError: if a rank is lost or has left.

    Example:
        >>> seed = hvd.broadcast(tf.random.uniform([], maxval=1 << 30, dtype=tf.int32), root_rank=0)
    """
    del ignore_name_scope
    set_id = process_sets.checked_id(process_set)
    tensor = to_tensor(tensor, "broadcast")
    root = check_root(root_rank, process_set)
    return _kernels.broadcast(tensor, root, name_of("broadcast", name, tensor), set_id)


@tf.RegisterGradient("TfhvdBroadcast")
def _gradient(forward: Any, gradient: Any) -> tf.Tensor:
    name, set_id = name_of_gradient(forward), forward.get_attr("process_set_id")
    [total] = _kernels.reduce([tf.convert_to_tensor(gradient)], Sum, name, set_id)
    if process.rank() == forward.get_attr("root_rank"):
        return total
    # A session runs only what its results depend on, and every rank must take part in the sum.
    needed = [] if tf.compat.v1.get_default_graph().building_function else [total]
    with tf.control_dependencies(needed):
        return tf.zeros_like(total)
