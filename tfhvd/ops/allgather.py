"""allgather: every rank's tensor, joined along the first dimension."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tensorflow as tf

from tfhvd.ops import _kernels, compiled
from tfhvd.ops._checks import check_has_first_dimension, to_tensor
from tfhvd.ops._gather_gradient import gather_gradients, rows_of_ranks
from tfhvd.ops._gradient import gradient_of
from tfhvd.ops.names import Name, name_of
from tfhvd.runtime import process_sets

if TYPE_CHECKING:
    from tfhvd.compat.types import TensorLike


def allgather(
    tensor: TensorLike | tf.SparseTensor,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: process_sets.ProcessSet = process_sets.global_process_set,
) -> tf.Tensor | tf.SparseTensor:
    """Joins every rank's tensor along the first dimension, rank 0's first, on every rank.

    Differentiable: a rank gets its own rows of the sum of all ranks' gradients. For the mean of the
    ranks' losses the sum is right, since a distributed optimizer divides by the number of ranks.

    Args:
        tensor: of shape [n, ...]; n may differ between ranks and be 0, the rest may not. Any type
            of number, or bool. Or a SparseTensor: its entries travel, and not what is between them.
        name: the collective's identity: ranks meet by it. Made from the tensor's name if not given.
        ignore_name_scope: leaves out the name scope, which in a graph stands before a given name.
        process_set: the ranks that take part.

    Returns:
        A tensor of the same type, of shape [sum of the n, ...]; a SparseTensor of a SparseTensor.

    Raises:
        NotInitializedError: before `init`.
        NotImplementedError: for IndexedSlices, and for a SparseTensor in a compiled function.
        TypeError: for a type that does not travel.
        ValueError: for a scalar.
        tf.errors.InvalidArgumentError: if type or shape do not fit between the ranks.
        tf.errors.AbortedError: if a rank has failed or left.

    Example:
        >>> hvd.allgather(tf.fill([hvd.rank() + 1], hvd.rank()))  # [0, 1, 1] on two ranks
    """
    set_id = process_sets.checked_id(process_set)
    if isinstance(tensor, tf.SparseTensor):
        values = to_tensor(tensor.values, "allgather")
        key = name_of("allgather", name, values, set_id=set_id, ignore_name_scope=ignore_name_scope)
        return _gather_sparse(tensor, key, set_id)
    tensor = to_tensor(tensor, "allgather")
    check_has_first_dimension(tensor, "allgather")
    key = name_of("allgather", name, tensor, set_id=set_id, ignore_name_scope=ignore_name_scope)
    return _kernels.gather(tensor, key, set_id)


def _gather_sparse(tensor: tf.SparseTensor, key: Name, set_id: int) -> tf.SparseTensor:
    """Gathers shapes first: entries move down by the rows of the ranks before."""
    if compiled.is_compiled():
        raise NotImplementedError(
            "hvd.allgather cannot gather a SparseTensor in a function with jit_compile=True, where "
            "shapes are fixed; pass tf.sparse.to_dense(tensor), or call it outside of the function."
        )
    before, shapes = rows_of_ranks(tensor.dense_shape, key.part("shape"), set_id)
    fits = tf.debugging.assert_equal(
        shapes[:, 1:],
        tf.broadcast_to(shapes[:1, 1:], tf.shape(shapes[:, 1:])),
        message=f"hvd.allgather '{key.text}': SparseTensors may differ between ranks in the first "
        "dimension only; pass the same later dimensions on every rank.",
    )
    with tf.control_dependencies([] if fits is None else [fits]):
        down = tf.concat([before[:1], tf.zeros_like(before[1:])], 0)
        indices, values = _kernels.gather_all(
            [tensor.indices + down, tensor.values], key.part("entries"), set_id
        )
        shape = tf.concat([tf.reduce_sum(shapes[:, :1], 0), shapes[0, 1:]], 0)
    return tf.SparseTensor(indices, values, shape)


@gradient_of("TfhvdAllgather")
def _gradient(forward: tf.Operation, gradient: tf.Tensor) -> tf.Tensor:
    return gather_gradients(forward, [gradient])[0]
