"""Collectives on values, with the arguments in the order of horovod.keras."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tensorflow as tf

from tfhvd import ops
from tfhvd.compression import Compressing, Compression
from tfhvd.ops import ReduceOp

if TYPE_CHECKING:
    from tfhvd.compat.types import TensorLike


def allreduce(
    value: TensorLike,
    name: str | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: ReduceOp | None = None,
    compression: Compressing = Compression.none,
) -> tf.Tensor:
    """Reduces a value over the ranks: `tfhvd.allreduce` for anything that becomes a tensor.

    Args:
        value: a number, list, array or tensor, of the same shape and type on every rank. Types:
            uint8, int8, int32, int64, float16, bfloat16, float32, float64; bool with Min or Max.
        name: the name of the reduction, the same on every rank.
        average: Horovod's old way to say op=Average (True) or op=Sum (False).
        prescale_factor: the factor for the value before the reduction.
        postscale_factor: the factor for the result.
        op: Average (default), Sum, Min, Max, Product or Adasum.
        compression: the form in which the value is sent.

    Returns:
        A tensor like `value`, the same on every rank.

    Raises:
        NotInitializedError: before `init`.
        TypeError: if `op` does not support the type.
        ValueError: for an unknown op.
        tf.errors.InvalidArgumentError: if shape, type or arguments differ between the ranks.
        tf.errors.AbortedError: if a rank has failed or left.

    Example:
        >>> accuracy = hvd.allreduce(accuracy, name="accuracy")
    """
    return ops.allreduce(
        tf.convert_to_tensor(value),
        average=average,
        name=name,
        op=op,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        compression=compression,
    )


def allgather(value: TensorLike, name: str | None = None) -> tf.Tensor:
    """Joins the ranks' values along their first dimension.

    Args:
        value: a list, array or tensor; ranks may differ in the first dimension only.
        name: the name of the operation, the same on every rank.

    Returns:
        A tensor with the values of rank 0, rank 1 and so on, the same on every rank.

    Raises:
        NotInitializedError: before `init`.
        TypeError: for a type that cannot be sent.
        ValueError: for a scalar.
        tf.errors.InvalidArgumentError: if types, or later dimensions, differ between the ranks.
        tf.errors.AbortedError: if a rank has failed or left.

    Example:
        >>> predictions = hvd.allgather(model.predict(x))
    """
    return ops.allgather(tf.convert_to_tensor(value), name=name)


def broadcast(value: TensorLike, root_rank: int, name: str | None = None) -> tf.Tensor:
    """Gives every rank the value of one rank.

    Args:
        value: a number, list, array or tensor, of the same shape and type on every rank.
        root_rank: the rank that sends its value.
        name: the name of the operation, the same on every rank.

    Returns:
        A tensor with the value of `root_rank`.

    Raises:
        NotInitializedError: before `init`.
        TypeError: for a type that cannot be sent.
        ValueError: if `root_rank` is not a rank.
        tf.errors.InvalidArgumentError: if shape, type or root differ between the ranks.
        tf.errors.AbortedError: if a rank has failed or left.

    Example:
        >>> seed = hvd.broadcast(seed, 0)
    """
    return ops.broadcast(tf.convert_to_tensor(value), root_rank, name=name)
