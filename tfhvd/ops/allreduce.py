"""allreduce: one tensor, reduced over the ranks."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfhvd import process_sets, updates
from tfhvd.compression import Compression
from tfhvd.ops import _kernels
from tfhvd.ops._checks import check_reduction, to_factor, to_tensor
from tfhvd.ops._names import name_of
from tfhvd.ops._reduce_gradient import reduction_gradients
from tfhvd.ops.reduce_op import Average, ReduceOp, Sum, chosen


def allreduce(
    tensor: Any,
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
    process_set: process_sets.ProcessSet = process_sets.global_process_set,
    ignore_name_scope: bool = False,
) -> Any:
    """Reduces a tensor over the ranks; every rank gets the same result, to the bit.

    Differentiable: the gradient is reduced likewise.

    Args:
        tensor: of any shape, the same on every rank. Types: uint8, int8, int32, int64, float16,
            bfloat16, float32, float64; bool with Min or Max. Or IndexedSlices with Average or Sum:
            their values and indices are gathered instead.
        average: the older way to say op=Average (True) or op=Sum (False).
        device_dense: the device to reduce a tensor on, "" for where it is.
        device_sparse: the same for IndexedSlices.
        compression: how the tensor travels: `Compression.none`, `.fp16` or `.bf16`.
        op: Average (where none is given), Sum, Min, Max, Product or Adasum (which adds orthogonal
            gradients and averages parallel ones, in a tree of ranks that is even where their number
            is a power of two; for floating-point types).
        prescale_factor: what each rank's tensor is multiplied by before the reduction.
        postscale_factor: what the result is multiplied by.
        name: the collective's identity: ranks meet by it. Made from the tensor's name if not given.
        process_set: the ranks that take part.
        ignore_name_scope: taken for Horovod's sake: name scopes never change a given name.

    Returns:
        A tensor of the same shape and type, or IndexedSlices.

    Raises:
        NotInitializedError: before `init`.
        TypeError: for a type that cannot be reduced so.
        ValueError: for an op that is none, or IndexedSlices with Min, Max or Product.
        tf.errors.InvalidArgumentError: if shape, type or arguments differ between the ranks.
        tf.errors.AbortedError: if a rank is lost or has left.

    Example:
        >>> hvd.allreduce(tf.constant([1.0, 2.0]) * hvd.rank(), op=hvd.Sum)
    """
    del ignore_name_scope
    op = chosen(op, average)
    updates.note_reduction([tensor])
    set_id = process_sets.checked_id(process_set)
    scales = (
        to_factor(prescale_factor, "prescale_factor"),
        to_factor(postscale_factor, "postscale_factor"),
    )
    if isinstance(tensor, tf.IndexedSlices):
        with _kernels.on_device(device_sparse):
            return _allreduce_slices(tensor, op, scales, compression, name, process_set)
    tensor = to_tensor(tensor, "allreduce")
    check_reduction(tensor, op, *scales)
    small, context = compression.compress(tensor)
    with _kernels.on_device(device_dense):
        key = name_of("allreduce", name, small)
        [reduced] = _kernels.reduce([small], op, key, set_id, *scales)
    return compression.decompress(reduced, context)


def _allreduce_slices(
    slices: tf.IndexedSlices,
    op: ReduceOp,
    scales: tuple[float, float],
    compression: Any,
    name: str | None,
    process_set: process_sets.ProcessSet,
) -> tf.IndexedSlices:
    """Gathers values and indices: rows of one index stay apart, and count as their sum."""
    if op not in (Average, Sum):
        raise ValueError(
            f"IndexedSlices can be added only. Received: op={op!r}. Expected: hvd.Average or "
            "hvd.Sum, or a dense tensor (tf.convert_to_tensor)."
        )
    values = to_tensor(slices.values, "allreduce")
    indices = to_tensor(slices.indices, "allreduce")
    key = name_of("allreduce", name, values)
    set_id = process_sets.checked_id(process_set)
    small, context = compression.compress(values)
    small = _kernels.gather(small, key.part("values"), set_id)
    indices = _kernels.gather(indices, key.part("indices"), set_id)
    values = compression.decompress(small, context)
    factor = scales[0] * scales[1] / (process_set.size() if op == Average else 1)
    if factor != 1.0:
        values *= tf.cast(factor, values.dtype)
    return tf.IndexedSlices(values, indices, slices.dense_shape)


@tf.RegisterGradient("TfhvdAllreduce")
def _gradient(forward: Any, gradient: Any) -> tf.Tensor:
    return reduction_gradients(forward, [gradient])[0]
