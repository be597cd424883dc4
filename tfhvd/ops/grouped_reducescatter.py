"""grouped_reducescatter: several tensors, reduced and cut into parts for the ranks, as one unit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import tensorflow as tf

from tfhvd.compression import Compressing, Compression
from tfhvd.ops import _kernels, sync_monitor
from tfhvd.ops._checks import check_has_first_dimension, check_reduction, to_factor, to_tensors
from tfhvd.ops._gradient import gradient_of
from tfhvd.ops._reduce_gradient import reduction_gradients
from tfhvd.ops._wide_average import reduce_wide
from tfhvd.ops.names import name_of
from tfhvd.ops.reduce_op import ReduceOp, chosen_for_parts
from tfhvd.runtime import process_sets

if TYPE_CHECKING:
    from tfhvd.compat.types import TensorLike


def grouped_reducescatter(
    tensors: Sequence[TensorLike],
    device_dense: str = "",
    compression: Compressing = Compression.none,
    op: ReduceOp | None = None,
    name: str | None = None,
    process_set: process_sets.ProcessSet = process_sets.global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[tf.Tensor]:
    """Reduces several tensors, each rank getting its rows: all or, if one does not fit, none.

    Differentiable.

    Args:
        tensors: of shapes [n, ...] and types that are the same on every rank, in the same order.
        device_dense: the device to reduce on, "" for that of the tensors.
        compression: how the tensors travel: `Compression.none`, `.fp16` or `.bf16`.
        op: Average (if none is given), Sum, Min, Max or Product.
        name: the group's identity: ranks meet by it. Made from the first tensor's name if not
            given.
        process_set: the ranks that take part.
        prescale_factor: what each rank's tensors are multiplied by before the reduction.
        postscale_factor: what the results are multiplied by.

    Returns:
        A list of tensors of the same types, of shapes [this rank's rows, ...], in the same order.

    Raises:
        NotInitializedError: before `init`.
        NotImplementedError: for IndexedSlices.
        TypeError: for a type that cannot be reduced so.
        ValueError: for an op that is none, a scalar, or no tensors.
        tf.errors.InvalidArgumentError: if anything of the group differs between the ranks.
        tf.errors.AbortedError: if a rank has failed or left.

    Example:
        >>> kernel, bias = hvd.grouped_reducescatter([kernel, bias], op=hvd.Average)
    """
    op = chosen_for_parts(op)
    sync_monitor.note_reduction(tensors)
    set_id = process_sets.checked_id(process_set)
    prescale = to_factor(prescale_factor, "prescale_factor")
    postscale = to_factor(postscale_factor, "postscale_factor")
    dense = to_tensors(tensors, "grouped_reducescatter")
    for tensor in dense:
        check_has_first_dimension(tensor, "grouped_reducescatter")
        check_reduction(tensor, op, prescale, postscale)
    small, contexts = zip(*(compression.compress(tensor) for tensor in dense))
    with _kernels.on_device(device_dense):
        key = name_of("grouped_reducescatter", name, small[0], set_id=set_id)
        scales = (prescale, postscale)
        reduced = reduce_wide(_kernels.reduce_scatter, small, op, key, set_id, scales)
    return [compression.decompress(tensor, ctx) for tensor, ctx in zip(reduced, contexts)]


@gradient_of("TfhvdGroupedReducescatter")
def _gradient(forward: tf.Operation, *gradients: tf.Tensor) -> list[tf.Tensor]:
    return reduction_gradients(forward, list(gradients))
