"""broadcast: the root's tensor on every rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tensorflow as tf

from tfhvd.ops import _kernels
from tfhvd.ops._checks import check_root, to_tensor
from tfhvd.ops._gradient import gradient_of
from tfhvd.ops.names import name_of, name_of_gradient, set_of
from tfhvd.ops.reduce_op import Sum
from tfhvd.runtime import process_sets

if TYPE_CHECKING:
    from tfhvd.compat.types import TensorLike


def broadcast(
    tensor: TensorLike,
    root_rank: int,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: process_sets.ProcessSet = process_sets.global_process_set,
) -> tf.Tensor:
    """Returns the root's tensor on every rank.

    Differentiable: the root gets the sum of all ranks' gradients, the others zeros. For the mean of
    the ranks' losses the sum is right, since a distributed optimizer divides by their number.

    Args:
        tensor: of any shape, the same on every rank; the values matter on the root only. Any type
            of number, or bool.
        root_rank: the rank whose values are taken, the same on every rank; its number in the job,
            also with a process set.
        name: the collective's identity: ranks meet by it. Made from the tensor's name if not given.
        ignore_name_scope: leaves out the name scope, which in a graph stands before a given name.
        process_set: the ranks that take part.

    Returns:
        A tensor of the same shape and type.

    Raises:
        NotInitializedError: before `init`.
        NotImplementedError: for IndexedSlices.
        TypeError: for a type that does not travel.
        ValueError: for a root that is no rank.
        tf.errors.InvalidArgumentError: if shape, type or root differ between the ranks.
        tf.errors.AbortedError: if a rank has failed or left.

    Example:
        >>> seed = hvd.broadcast(tf.random.uniform([], maxval=1 << 30, dtype=tf.int32), root_rank=0)
    """
    set_id = process_sets.checked_id(process_set)
    tensor = to_tensor(tensor, "broadcast")
    root = check_root(root_rank, process_set)
    key = name_of("broadcast", name, tensor, set_id=set_id, ignore_name_scope=ignore_name_scope)
    return _kernels.broadcast(tensor, root, key, set_id)


@gradient_of("TfhvdBroadcast")
def _gradient(forward: tf.Operation, gradient: tf.Tensor) -> tf.Tensor:
    name, set_id = name_of_gradient(forward), set_of(forward)
    [total] = _kernels.reduce([tf.convert_to_tensor(gradient)], Sum, name, set_id)
    # The same graph on every rank: if one rank left out the sum, the others would wait for it.
    is_root = tf.equal(_kernels.rank(), forward.get_attr("root_rank"))
    return tf.where(is_root, total, tf.zeros_like(total))
