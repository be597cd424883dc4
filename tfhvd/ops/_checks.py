"""What is refused at the call, before any other rank hears of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, SupportsIndex

import tensorflow as tf

from tfhvd.job import process
from tfhvd.ops.reduce_op import Adasum, Average, Max, Min, ReduceOp, Sum
from tfhvd.runtime.process_sets import ProcessSet

if TYPE_CHECKING:
    from tfhvd.compat.types import TensorLike

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
    tf.int16,
    tf.uint16,
    tf.uint32,
    tf.uint64,
    tf.complex64,
    tf.complex128,
)


def to_tensor(value: TensorLike, kind: str) -> tf.Tensor:
    """Converts what a user passed to an operation into a tensor of a type that travels.

    Args:
        value: a tensor, variable, array, number or list.
        kind: the operation's name, for messages.

    Raises:
        NotInitializedError: before `init`.
        NotImplementedError: for IndexedSlices.
        TypeError: if the type has no collectives, or the value is sparse or ragged.
    """
    process.check_running()
    if isinstance(value, tf.IndexedSlices):
        raise NotImplementedError(
            f"hvd.{kind} is not defined for IndexedSlices; pass tf.convert_to_tensor(value), or "
            "use hvd.allreduce or hvd.grouped_allreduce, which add them."
        )
    if isinstance(value, (tf.SparseTensor, tf.RaggedTensor)):
        ragged = isinstance(value, tf.RaggedTensor)
        raise TypeError(
            f"hvd.{kind} takes dense tensors, and this is a {type(value).__name__}; pass "
            f"{'value.to_tensor()' if ragged else 'tf.sparse.to_dense(value)'}."
        )
    tensor = tf.convert_to_tensor(value)
    if tensor.dtype not in DTYPES:
        raise TypeError(
            f"hvd.{kind} cannot carry this type. Received: {tensor.dtype.name}. "
            f"Expected: one of {', '.join(dtype.name for dtype in DTYPES)}; use tf.cast."
        )
    return tensor


def check_reduction(tensor: tf.Tensor, op: ReduceOp, prescale: float, postscale: float) -> None:
    """Refuses to calculate with truth values, and to compare complex numbers.

    Raises:
        TypeError: for bool with anything but Min (and) or Max (or), unscaled; for complex numbers
            with anything but Average or Sum.
    """
    if op == Adasum and not tensor.dtype.is_floating:
        raise TypeError(
            f"Adasum divides by the length of a gradient. Received: {tensor.dtype.name}. Expected: "
            "float16, bfloat16, float32 or float64; use tf.cast."
        )
    if tensor.dtype.is_complex and op not in (Average, Sum):
        raise TypeError(
            f"Complex numbers can be added only. Received: a {tensor.dtype.name} tensor, "
            f"op={op!r}. Expected: hvd.Average or hvd.Sum; or tf.math.real and tf.math.imag."
        )
    if tensor.dtype != tf.bool:
        return
    if op not in (Min, Max) or prescale != 1.0 or postscale != 1.0:
        raise TypeError(
            f"Truth values cannot be added or scaled. Received: a bool tensor, op={op!r}, "
            f"prescale_factor={prescale}, postscale_factor={postscale}. Expected: op=hvd.Min "
            "(true if it is true on every rank) or op=hvd.Max (if on any rank), unscaled; "
            "or tf.cast."
        )


def to_tensors(values: Sequence[TensorLike], kind: str) -> list[tf.Tensor]:
    """Converts what a user passed to a grouped operation.

    Args:
        values: a list or tuple of what `to_tensor` takes.
        kind: the operation's name, for messages.

    Raises:
        NotInitializedError: before `init`.
        NotImplementedError: for IndexedSlices.
        TypeError: if `values` is no list or tuple, or a value's type has no collectives.
        ValueError: if there are no values.
    """
    check_group(values, kind)
    return [to_tensor(value, kind) for value in values]


def check_group(values: object, kind: str) -> None:
    """Refuses what is no group.

    Raises:
        TypeError: if it is no list.
        ValueError: if it is empty.
    """
    if not isinstance(values, (list, tuple)):
        raise TypeError(
            f"hvd.{kind} takes a list or tuple of tensors, and this is of type "
            f"{type(values).__name__}; for one tensor pass [tensor]."
        )
    if not values:
        raise ValueError(f"hvd.{kind} needs at least one tensor, and the list is empty.")


def to_factor(value: float, name: str) -> float:
    """Returns a scale as a float.

    Raises:
        TypeError: if it is no number.
    """
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"Received: {name}={value!r}. Expected: a number.") from None


def check_root(root_rank: SupportsIndex, process_set: ProcessSet) -> int:
    """Returns the root, a rank of the job even if a process set is given, as an int.

    Raises:
        TypeError: if it is no whole number.
        ValueError: if it is no rank.
    """
    try:
        root = root_rank.__index__()
    except (AttributeError, TypeError):
        raise TypeError(f"Received: root_rank={root_rank!r}. Expected: a rank.") from None
    ranks = process_set.ranks or range(process.size())
    if root not in ranks:
        everyone = process_set.process_set_id == 0
        shown = f"0 to {len(ranks) - 1}" if everyone else f"one of {list(ranks)}"
        raise ValueError(
            "The root must be one of the ranks that take part. "
            f"Received: root_rank={root}. Expected: {shown}."
        )
    return root


def check_has_first_dimension(tensor: tf.Tensor, kind: str) -> None:
    """Refuses scalars, which can be neither joined nor cut.

    Args:
        tensor: what is to travel.
        kind: the operation's name, for messages.

    Raises:
        ValueError: if the tensor is known to be a scalar.
    """
    if tensor.shape.rank == 0:
        raise ValueError(
            f"hvd.{kind} works along the first dimension. Received: a scalar. "
            "Expected: at least one dimension; use tf.reshape(x, [1])."
        )


def to_splits(splits: TensorLike, tensor: tf.Tensor, process_set: ProcessSet) -> tf.Tensor:
    """Returns the rows for each rank as an int32 tensor, checked as far as they are known.

    Each rank has its own values. If one rank's values are wrong, the others wait for it. So the
    kernel checks the values of an eager call, and tells all ranks.

    Args:
        splits: a tensor, array or list of whole numbers, one a rank.
        tensor: the tensor to send.
        process_set: the ranks that take part.

    Raises:
        TypeError: if they are no whole numbers.
        ValueError: if they are not one a rank; in a graph if they are known to be negative, or not
            to add up to the tensor's rows.
    """
    splits = tf.convert_to_tensor(splits)
    if not splits.dtype.is_integer:
        raise TypeError(f"Received: splits of type {splits.dtype.name}. Expected: whole numbers.")
    size, rows = process_set.size(), tensor.shape[0] if tensor.shape.rank else None
    if not splits.shape.is_compatible_with([size]):
        raise ValueError(
            f"hvd.alltoall needs the number of rows for each rank. Received: splits of shape "
            f"{splits.shape}. Expected: shape ({size},)."
        )
    values = None if tf.executing_eagerly() else tf.get_static_value(splits)
    if values is not None and (values.min() < 0 or rows not in (None, values.sum())):
        raise ValueError(
            f"hvd.alltoall cannot send these rows. Received: splits={values.tolist()} for a "
            f"tensor of {'?' if rows is None else rows} rows. Expected: numbers of 0 or above "
            "that add up to the tensor's rows."
        )
    return tf.cast(splits, tf.int32)
