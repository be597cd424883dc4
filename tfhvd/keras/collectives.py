"""Collectives on values, with the arguments in the order that horovod.keras has them."""

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
        prescale_factor: what the value is multiplied by before the reduction.
        postscale_factor: what the result is multiplied by.
        op: Average (default), Sum, Min, Max, Product or Adasum.
        compression: how the value travels.

    Returns:
        A tensor like `value`, the same on every rank.

    Raises:
        NotInitializedError: before `init`.
        TypeError: for a type that cannot be reduced so.
        ValueError: for an op that is none.
        tf.errors.InvalidArgumentError: if shape, type or arguments differ between the ranks.
        tf.errors.AbortedError: if a rank is lost or has left.

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
        TypeError: for a type that does not travel.
        ValueError: for a scalar.
        tf.errors.InvalidArgumentError: if types, or later dimensions, differ between the ranks.
        tf.errors.AbortedError: if a rank is lost or has left.

    Example:
        >>> predictions = hvd.allgather(model.predict(x))
    """
    return ops.allgather(tf.convert_to_tensor(value), name=name)


def broadcast(value: TensorLike, root_rank: int, name: str | None = None) -> tf.Tensor:
    """Gives every rank the value of one.

    Args:
        value: a number, list, array or tensor, of the same shape and type on every rank.
        root_rank: the rank whose value it is.
        name: the name of the operation, the same on every rank.

    Returns:
        A tensor with the value of `root_rank`.

    Raises:
        NotInitializedError: before `init`.
        TypeError: for a type that does not travel.
        ValueError: for a root that is no rank.
        tf.errors.InvalidArgumentError: if shape, type or root differ between the ranks.
        tf.errors.AbortedError: if a rank is lost or has left.

    Example:
        >>> seed = hvd.broadcast(seed, 0)
    """
    return ops.broadcast(tf.convert_to_tensor(value), root_rank, name=name)
