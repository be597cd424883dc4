"""allgather: every rank's tensor, joined along the first dimension."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfhvd import process_sets
from tfhvd.ops import _kernels
from tfhvd.ops._checks import check_has_first_dimension, to_tensor
from tfhvd.ops._gather_gradient import gather_gradients
from tfhvd.ops._names import name_of


def allgather(
    tensor: Any,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: process_sets.ProcessSet = process_sets.global_process_set,
) -> tf.Tensor:
    """Joins every rank's tensor along the first dimension, rank 0's first, on every rank.

    Differentiable: a rank gets its own part of the gradients' sum.

    Args:
        tensor: of shape [n, ...]; n may differ between ranks and be 0, the rest may not. Types:
            uint8, int8, int32, int64, float16, bfloat16, float32, float64, bool.
        name: the collective's identity: ranks meet by it. Made from the tensor's name if not given.
        ignore_name_scope: taken for Horovod's sake: name scopes never change a given name.
        process_set: the ranks that take part.

    Returns:
        A tensor of the same type, of shape [sum of the n, ...].

    Raises:
        NotInitializedError: before `init`.
        TypeError: for a type that does not travel.
        ValueError: for a scalar.
        tf.errors.InvalidArgumentError: if type or shape do not fit between the ranks.
        tf.errors.AbortedError: if a rank is lost or has left.

    Example:
        >>> hvd.allgather(tf.fill([hvd.rank() + 1], hvd.rank()))  # [0, 1, 1] on two ranks
    """
    del ignore_name_scope
    set_id = process_sets.checked_id(process_set)
    tensor = to_tensor(tensor, "allgather")
    check_has_first_dimension(tensor, "allgather")
    return _kernels.gather(tensor, name_of("allgather", name, tensor), set_id)


@tf.RegisterGradient("TfhvdAllgather")
def _gradient(forward: Any, gradient: Any) -> tf.Tensor:
    return gather_gradients(forward, [gradient])[0]
