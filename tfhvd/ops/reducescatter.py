"""reducescatter: one tensor, reduced over the ranks, of which each rank gets some rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tensorflow as tf

from tfhvd.compression import Compressing, Compression
from tfhvd.ops import _kernels, sync_monitor
from tfhvd.ops._checks import check_has_first_dimension, check_reduction, to_factor, to_tensor
from tfhvd.ops._gradient import gradient_of
from tfhvd.ops._reduce_gradient import reduction_gradients
from tfhvd.ops._wide_average import reduce_wide
from tfhvd.ops.names import name_of
from tfhvd.ops.reduce_op import ReduceOp, chosen_for_parts
from tfhvd.runtime import process_sets

if TYPE_CHECKING:
    from tfhvd.compat.types import TensorLike


def reducescatter(
    tensor: TensorLike,
    device_dense: str = "",
    compression: Compressing = Compression.none,
    op: ReduceOp | None = None,
    name: str | None = None,
    process_set: process_sets.ProcessSet = process_sets.global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> tf.Tensor:
    """Reduces a tensor over the ranks and gives each rank its part of the rows.

    The parts follow each other by rank. If the rows do not divide evenly, the first ranks get one
    more. Differentiable: the gradients of all rows are gathered.

    Args:
        tensor: of shape [n, ...], the same on every rank. Any type of number; complex ones with
            Average or Sum, bool with Min or Max.
        device_dense: the device to reduce on, "" for its own.
        compression: how the tensor travels: `Compression.none`, `.fp16` or `.bf16`.
        op: Average (if none is given), Sum, Min, Max or Product.
        name: the collective's identity: ranks meet by it. Made from the tensor's name if not given.
        process_set: the ranks that take part.
        prescale_factor: what each rank's tensor is multiplied by before the reduction.
        postscale_factor: what the result is multiplied by.

    Returns:
        A tensor of the same type, of shape [this rank's rows, ...].

    Raises:
        NotInitializedError: before `init`.
        NotImplementedError: for IndexedSlices.
        TypeError: for a type that cannot be reduced so.
        ValueError: for an op that is none, or a scalar.
        tf.errors.InvalidArgumentError: if shape, type or arguments differ between the ranks.
        tf.errors.AbortedError: if a rank has failed or left.

    Example:
        >>> hvd.reducescatter(tf.range(5), op=hvd.Sum)  # two ranks: [0, 2, 4] and [6, 8]
    """
    op = chosen_for_parts(op)
    sync_monitor.note_reduction([tensor])
    set_id = process_sets.checked_id(process_set)
    scales = (
        to_factor(prescale_factor, "prescale_factor"),
        to_factor(postscale_factor, "postscale_factor"),
    )
    tensor = to_tensor(tensor, "reducescatter")
    check_has_first_dimension(tensor, "reducescatter")
    check_reduction(tensor, op, *scales)
    small, context = compression.compress(tensor)
    with _kernels.on_device(device_dense):
        key = name_of("reducescatter", name, small, set_id=set_id)
        [reduced] = reduce_wide(_kernels.reduce_scatter, [small], op, key, set_id, scales)
    return compression.decompress(reduced, context)


@gradient_of("TfhvdReducescatter")
def _gradient(forward: tf.Operation, gradient: tf.Tensor) -> tf.Tensor:
    return reduction_gradients(forward, [gradient])[0]
