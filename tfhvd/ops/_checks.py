"""What is refused at the call, before any other rank hears of it."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfhvd import process
from tfhvd.ops.reduce_op import Max, Min, ReduceOp
from tfhvd.process_sets import ProcessSet

DTYPES = (
    tf.uint8,
    tf.int8,
    tf.int32,
    tf.int64,
    tf.float16,
    tf.bfloat16,
    tf.float32,
    tf.float64,
    tf.bool,
)


def to_tensor(value: Any, kind: str) -> tf.Tensor:
    """Converts what a user passed to an operation into a tensor of a type that travels.

    Args:
        value: a tensor, variable, array, number or list.
        kind: the operation's name, for messages.

    Raises:
        NotInitializedError: before `init`.
        TypeError: if the type has no collectives, or the value is sparse or ragged.
    """
    process.check_running()
    if isinstance(value, (tf.IndexedSlices, tf.SparseTensor, tf.RaggedTensor)):
        raise TypeError(
            f"hvd.{kind} takes dense tensors. Received: a {type(value).__name__}. "
            "Expected: a tensor, variable or array; use tf.convert_to_tensor or tf.sparse.to_dense."
        )
    tensor = tf.convert_to_tensor(value)
    if tensor.dtype not in DTYPES:
        raise TypeError(
            f"hvd.{kind} cannot carry this type. Received: {tensor.dtype.name}. "
            f"Expected: one of {', '.join(dtype.name for dtype in DTYPES)}; use tf.cast."
        )
    return tensor


def check_reduction(tensor: tf.Tensor, op: ReduceOp, prescale: float, postscale: float) -> None:
    """Refuses to calculate with truth values.

    Raises:
        TypeError: for bool with anything but Min (and) or Max (or), unscaled.
    """
    if tensor.dtype != tf.bool:
        return
    if op not in (Min, Max) or prescale != 1.0 or postscale != 1.0:
        raise TypeError(
            f"Truth values cannot be added or scaled. Received: a bool tensor, op={op!r}, "
            f"prescale_factor={prescale}, postscale_factor={postscale}. Expected: op=hvd.Min "
            "(true where every rank has true) or op=hvd.Max (where some rank has), unscaled; "
            "or tf.cast."
        )


def to_factor(value: Any, name: str) -> float:
    """Returns a scale as a float.

    Raises:
        TypeError: if it is no number.
    """
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"Received: {name}={value!r}. Expected: a number.") from None


def check_root(root_rank: Any, process_set: ProcessSet) -> int:
    """Returns the root as an int.

    Raises:
        TypeError: if it is no whole number.
        ValueError: if it is no rank.
    """
    try:
        root = root_rank.__index__()
    except (AttributeError, TypeError):
        raise TypeError(f"Received: root_rank={root_rank!r}. Expected: a rank.") from None
    size = process_set.size()
    if not 0 <= root < size:
        raise ValueError(
            f"The root is no rank of the job. Received: root_rank={root}. "
            f"Expected: 0 to {size - 1}."
        )
    return root


def check_has_first_dimension(tensor: tf.Tensor) -> None:
    """Refuses scalars, which cannot be joined.

    Raises:
        ValueError: if the tensor is known to be a scalar.
    """
    if tensor.shape.rank == 0:
        raise ValueError(
            "hvd.allgather joins tensors along their first dimension. Received: a scalar. "
            "Expected: at least one dimension; use tf.reshape(x, [1])."
        )
