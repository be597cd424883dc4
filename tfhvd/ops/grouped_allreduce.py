"""grouped_allreduce: several tensors, reduced over the ranks as one unit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import tensorflow as tf

from tfhvd.compression import Compressing, Compression
from tfhvd.ops import _kernels, sync_monitor
from tfhvd.ops._checks import check_group, check_reduction, to_factor, to_tensor
from tfhvd.ops._gradient import gradient_of
from tfhvd.ops._reduce_gradient import reduction_gradients
from tfhvd.ops._slices import check_slices, reduce_slices
from tfhvd.ops._wide_average import reduce_wide
from tfhvd.ops.names import name_of
from tfhvd.ops.reduce_op import ReduceOp, chosen
from tfhvd.runtime import process_sets

if TYPE_CHECKING:
    from tfhvd.compat.types import TensorLike


def grouped_allreduce(
    tensors: Sequence[TensorLike | tf.IndexedSlices],
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
) -> list[tf.Tensor | tf.IndexedSlices]:
    """Reduces several tensors over the ranks: all of them or, if one does not fit, none.

    One call for many small tensors is faster than many calls. Differentiable.

    IndexedSlices among them are gathered, as by `allreduce`: the values as a unit, and the indices.

    Args:
        tensors: of any shapes and types, the same on every rank, in the same order. IndexedSlices
            with Average or Sum.
        average: the older way to say op=Average (True) or op=Sum (False).
        device_dense: the device to reduce on, "" for that of the tensors.
        device_sparse: the device to gather IndexedSlices on, "" for their own.
        compression: how the tensors travel: `Compression.none`, `.fp16` or `.bf16`.
        op: Average (if none is given), Sum, Min, Max, Product or Adasum (which adds orthogonal
            gradients and averages parallel ones, in a tree of ranks that is even where their number
            is a power of two; for floating-point types).
        prescale_factor: what each rank's tensors are multiplied by before the reduction.
        postscale_factor: what the results are multiplied by.
        name: the group's identity: ranks meet by it. Made from the first tensor's name if not
            given.
        process_set: the ranks that take part.
        ignore_name_scope: leaves out the name scope, which in a graph stands before a given name.

    Returns:
        A list of tensors with the same shapes and types, in the same order.

    Raises:
        NotInitializedError: before `init`.
        NotImplementedError: for IndexedSlices with another op than Average or Sum.
        TypeError: for a type that cannot be reduced so.
        ValueError: for an op that is none, or no tensors.
        tf.errors.InvalidArgumentError: if anything of the group differs between the ranks.
        tf.errors.AbortedError: if a rank has failed or left.

    Example:
        >>> losses, hits = hvd.grouped_allreduce([losses, hits], op=hvd.Sum)
    """
    op = chosen(op, average)
    sync_monitor.note_reduction(tensors)
    set_id = process_sets.checked_id(process_set)
    prescale = to_factor(prescale_factor, "prescale_factor")
    postscale = to_factor(postscale_factor, "postscale_factor")
    check_group(tensors, "grouped_allreduce")
    slices = {i: value for i, value in enumerate(tensors) if isinstance(value, tf.IndexedSlices)}
    if slices:
        check_slices(op)
    places = [i for i in range(len(tensors)) if i not in slices]
    dense = [to_tensor(tensors[i], "grouped_allreduce") for i in places]
    for tensor in dense:
        check_reduction(tensor, op, prescale, postscale)
    pairs = [compression.compress(tensor) for tensor in dense]
    small = [tensor for tensor, _ in pairs]
    first = small[0] if small else to_tensor(slices[0].values, "grouped_allreduce")
    key = name_of(
        "grouped_allreduce", name, first, set_id=set_id, ignore_name_scope=ignore_name_scope
    )
    results: list[tf.Tensor | tf.IndexedSlices] = [None] * len(tensors)
    if dense:
        with _kernels.on_device(device_dense):
            reduced = reduce_wide(_kernels.reduce, small, op, key, set_id, (prescale, postscale))
        for i, tensor, (_, context) in zip(places, reduced, pairs):
            results[i] = compression.decompress(tensor, context)
    if slices:
        scales = (prescale, postscale)
        with _kernels.on_device(device_sparse):
            gathered = reduce_slices(
                list(slices.values()), op, scales, compression, key, set_id, "grouped_allreduce"
            )
        for i, result in zip(slices, gathered):
            results[i] = result
    return results


@gradient_of("TfhvdGroupedAllreduce")
def _gradient(forward: tf.Operation, *gradients: tf.Tensor) -> list[tf.Tensor]:
    return reduction_gradients(forward, list(gradients))
