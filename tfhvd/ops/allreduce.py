"""allreduce: one tensor, reduced over the ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tensorflow as tf

from tfhvd.compression import Compressing, Compression
from tfhvd.ops import _kernels, sync_monitor
from tfhvd.ops._checks import check_reduction, to_factor, to_tensor
from tfhvd.ops._gradient import gradient_of
from tfhvd.ops._reduce_gradient import reduction_gradients
from tfhvd.ops._slices import check_slices, reduce_slices
from tfhvd.ops._wide_average import reduce_wide
from tfhvd.ops.names import name_of
from tfhvd.ops.reduce_op import ReduceOp, chosen
from tfhvd.runtime import process_sets

if TYPE_CHECKING:
    from tfhvd.compat.types import TensorLike


def allreduce(
    tensor: TensorLike | tf.IndexedSlices,
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Compressing = Compression.none,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
    process_set: process_sets.ProcessSet = process_sets.global_process_set,
    ignore_name_scope: bool = False,
) -> tf.Tensor | tf.IndexedSlices:
    """Reduces a tensor over the ranks; every rank gets the same result, to the bit.

    Differentiable: the gradient is reduced in the same way.

    Args:
        tensor: of any shape, the same on every rank. Any type of number; complex ones with Average
            or Sum, bool with Min or Max. Or IndexedSlices with Average or Sum: their values and
            indices are gathered instead.
        average: the older way to say op=Average (True) or op=Sum (False).
        device_dense: the device to reduce a tensor on, "" for its own.
        device_sparse: the device to gather IndexedSlices on, "" for their own.
        compression: how the tensor travels: `Compression.none`, `.fp16` or `.bf16`.
        op: Average (if none is given), Sum, Min, Max, Product or Adasum (which adds orthogonal
            gradients and averages parallel ones, in a tree of ranks that is even where their number
            is a power of two; for floating-point types).
        prescale_factor: what each rank's tensor is multiplied by before the reduction.
        postscale_factor: what the result is multiplied by.
        name: the collective's identity: ranks meet by it. Made from the tensor's name if not given.
        process_set: the ranks that take part.
        ignore_name_scope: leaves out the name scope, which in a graph stands before a given name.

    Returns:
        A tensor of the same shape and type, or IndexedSlices.

    Raises:
        NotInitializedError: before `init`.
        TypeError: for a type that cannot be reduced so.
        NotImplementedError: for IndexedSlices with another op than Average or Sum.
        ValueError: for an op that is none.
        tf.errors.InvalidArgumentError: if shape, type or arguments differ between the ranks.
        tf.errors.AbortedError: if a rank has failed or left.

    Example:
        >>> hvd.allreduce(tf.constant([1.0, 2.0]) * hvd.rank(), op=hvd.Sum)
    """
    op = chosen(op, average)
    sync_monitor.note_reduction([tensor])
    set_id = process_sets.checked_id(process_set)
    scales = (
        to_factor(prescale_factor, "prescale_factor"),
        to_factor(postscale_factor, "postscale_factor"),
    )
    if isinstance(tensor, tf.IndexedSlices):
        check_slices(op)
        with _kernels.on_device(device_sparse):
            values = to_tensor(tensor.values, "allreduce")
            key = name_of(
                "allreduce", name, values, set_id=set_id, ignore_name_scope=ignore_name_scope
            )
            [reduced] = reduce_slices([tensor], op, scales, compression, key, set_id, "allreduce")
        return reduced
    tensor = to_tensor(tensor, "allreduce")
    check_reduction(tensor, op, *scales)
    small, context = compression.compress(tensor)
    with _kernels.on_device(device_dense):
        key = name_of("allreduce", name, small, set_id=set_id, ignore_name_scope=ignore_name_scope)
        [reduced] = reduce_wide(_kernels.reduce, [small], op, key, set_id, scales)
    return compression.decompress(reduced, context)


@gradient_of("TfhvdAllreduce")
def _gradient(forward: tf.Operation, gradient: tf.Tensor) -> tf.Tensor:
    return reduction_gradients(forward, [gradient])[0]
