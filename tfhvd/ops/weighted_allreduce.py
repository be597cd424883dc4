"""weighted_allreduce: averages over the ranks, each of which says how much it counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import tensorflow as tf

from tfhvd.compression import Compressing, Compression
from tfhvd.ops import _kernels, compiled
from tfhvd.ops._checks import check_reduction, to_tensor
from tfhvd.ops._gradient import factors_of, filled, gradient_of
from tfhvd.ops.names import Identity, name_of, name_of_gradient, set_of, tensors_of
from tfhvd.ops.reduce_op import Average
from tfhvd.runtime import process_sets

if TYPE_CHECKING:
    from tfhvd.compat.types import TensorLike


def weighted_allreduce(
    tensors: Sequence[TensorLike],
    weight: tf.Tensor | int,
    name: str,
    compression: Compressing = Compression.none,
    device_dense: str = "",
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: process_sets.ProcessSet = process_sets.global_process_set,
) -> list[tf.Tensor]:
    """Averages tensors over the ranks by weights, all of them or none.

    If all weights are equal this is an allreduce by Average, to the bit, and costs no more: the
    weights are part of the agreement. A rank that has joined has the weight 0, and so does a rank
    whose tensors are of no samples: their values, even NaN, have no part in the result.

    Args:
        tensors: of floating-point types; of any shapes, the same on every rank.
        weight: how much this rank counts, 0 or above: an integer, or an int32 tensor without
            dimensions. In a compiled function it follows from shapes alone.
        name: the collective's identity.
        compression: how the tensors travel: `Compression.none`, `.fp16` or `.bf16`.
        device_dense: the device to reduce on, "" for that of the tensors.
        prescale_factor: what each rank's tensors are multiplied by before the reduction.
        postscale_factor: what the results are multiplied by.
        process_set: the ranks that take part.

    Returns:
        Tensors of the same shapes and types: zeros if all weights are 0.

    Raises:
        NotInitializedError: before `init`.
        TypeError: for a type that cannot be reduced so.
        tf.errors.InvalidArgumentError: if shapes or types differ between the ranks, or some ranks
            give no weight.
        tf.errors.AbortedError: if a rank has failed or left.

    Example:
        >>> [mean] = weighted_allreduce([gradient], weight=len(batch), name="mean")
    """
    set_id = process_sets.checked_id(process_set)
    pairs = [compression.compress(to_tensor(t, "weighted_allreduce")) for t in tensors]
    small = [tensor for tensor, _ in pairs]
    for tensor in small:
        check_reduction(tensor, Average, prescale_factor, postscale_factor)
    with _kernels.on_device(device_dense):
        reduced = _kernels.average(
            small,
            tf.cast(weight, tf.int32),
            name_of("allreduce", name if isinstance(name, Identity) else Identity(name)),
            set_id,
            prescale_factor,
            postscale_factor,
        )
    return [compression.decompress(t, context) for t, (_, context) in zip(reduced, pairs)]


@gradient_of("TfhvdWeightedAllreduce")
def _gradient(forward: tf.Operation, *gradients: tf.Tensor | None) -> list[tf.Tensor | None]:
    """A weighted average of the gradients.

    So it is exact for the ranks' losses averaged by the same weights, as `Average` is for their
    mean. See "Gradients" in docs/reference/collectives.md.
    """
    totals = _kernels.average(
        filled(gradients, compiled.results_of(forward)),
        tensors_of(forward)[-1],
        name_of_gradient(forward),
        set_of(forward),
        *factors_of(forward),
    )
    return [*totals, None]
