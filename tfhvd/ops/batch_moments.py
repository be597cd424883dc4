"""Mean and variance over the samples of all ranks: what synchronized batch normalization needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tfhvd.compat import keras as keras_compat
from tfhvd.job.process import is_initialized
from tfhvd.ops import Sum, allgather, allreduce
from tfhvd.ops.batch_weight import current, weight_of
from tfhvd.ops.names import Identity, name_by_occurrence
from tfhvd.runtime.membership import membership
from tfhvd.runtime.process_sets import ProcessSet, global_process_set, has_peers

if TYPE_CHECKING:
    from tfhvd.compat.types import Layer


def synchronize_keras() -> None:
    """Makes `BatchNormalization(synchronized=True)` of every imported Keras take all ranks."""
    keras_compat.synchronize_batch_normalization(_of_layer)


def _of_layer(
    layer: Layer, inputs: tf.Tensor, axes: Sequence[int], mask: tf.Tensor | None
) -> tuple[tf.Tensor, tf.Tensor] | None:
    process_set = getattr(layer, "tfhvd_process_set", global_process_set)
    if not is_initialized() or not has_peers(process_set):
        return None
    return moments(inputs, axes, mask, process_set)


def moments(
    inputs: tf.Tensor, axes: Sequence[int], mask: tf.Tensor | None, process_set: ProcessSet
) -> tuple[tf.Tensor, tf.Tensor]:
    """Computes mean and variance over some axes and all ranks, each sample counted once.

    Each rank sends its count, mean and sum of squared differences, which are put together as in
    Chan et al., 1979: no large squares are subtracted from each other. In an elastic job they are
    added up, the mean first: what is compiled must not be for so many ranks. Differentiable.

    Args:
        inputs: float32 or float64, of shape [samples, ..., channels]. The number of samples may
            differ between ranks and be 0; the channels may not.
        axes: over which to compute: all but one.
        mask: None, or a tensor that is true for what counts, with one dimension less than `inputs`.
        process_set: the ranks that take part.

    Returns:
        Mean and (population) variance, each of shape [channels], the same on every rank.

    Example:
        >>> mean, variance = moments(x, [0], None, hvd.global_process_set)
    """
    axes = list(axes)
    if mask is None:
        weights = tf.ones_like(inputs)
    else:
        weights = tf.cast(mask, inputs.dtype)[..., tf.newaxis] * tf.ones_like(inputs)
    count = tf.reduce_sum(weights, axes)
    kept = tf.where(weights > 0, inputs, tf.zeros_like(inputs))  # a masked NaN is none
    mean = tf.math.divide_no_nan(tf.reduce_sum(kept, axes), count)
    away = tf.where(weights > 0, inputs - _spread(mean, inputs, axes), tf.zeros_like(inputs))
    squares = tf.reduce_sum(tf.square(away), axes)
    # Not by the layer's name: ranks may number their layers differently.
    name = name_by_occurrence("batch_normalization/moments").text
    return _combined(tf.stop_gradient(count), mean, squares, name, process_set)


def _combined(
    count: tf.Tensor, mean: tf.Tensor, squares: tf.Tensor, name: str, process_set: ProcessSet
) -> tuple[tf.Tensor, tf.Tensor]:
    """Puts the ranks' moments together.

    The results on each rank are part of the loss, by that rank's weight if the average of gradients
    has weights. If a gradient is multiplied by this rank's weight later, the moments' part is
    therefore that of all ranks by their weights, divided by this rank's weight.
    """
    combine = _by_sums if membership.is_elastic else _by_rows

    @tf.custom_gradient
    def combined(mean: tf.Tensor, squares: tf.Tensor) -> Any:
        total, of_all, variance = combine(count, mean, squares, name, process_set)

        def backward(by_mean: tf.Tensor, by_variance: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            gradients = tf.stack([by_mean, by_variance])
            step = current()
            if step is not None:
                gradients *= weight_of(step, gradients.dtype)
            again = name_by_occurrence(f"{name}/gradient").text
            by_mean, by_variance = tf.unstack(
                allreduce(gradients, op=Sum, name=Identity(again), process_set=process_set)
            )
            parts = by_mean * count + by_variance * 2.0 * count * (mean - of_all), by_variance
            divisor = total if step is None else total * weight_of(step, total.dtype)
            return tuple(tf.math.divide_no_nan(part, divisor) for part in parts)

        return (of_all, variance), backward

    return combined(mean, squares)


def _by_rows(
    count: tf.Tensor, mean: tf.Tensor, squares: tf.Tensor, name: str, process_set: ProcessSet
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    own = tf.stack([count, mean, squares])[tf.newaxis]
    rows = allgather(own, name=Identity(name), process_set=process_set)
    counts, means, sums = tf.unstack(rows, axis=1)
    total = tf.reduce_sum(counts, 0)
    mean = tf.math.divide_no_nan(tf.reduce_sum(counts * means, 0), total)
    squares = tf.reduce_sum(sums + counts * tf.square(means - mean), 0)
    return total, mean, tf.math.divide_no_nan(squares, total)


def _by_sums(
    count: tf.Tensor, mean: tf.Tensor, squares: tf.Tensor, name: str, process_set: ProcessSet
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Each sum has its own count: a rank may be lost between the two."""

    def average(total: tf.Tensor, part: str) -> tuple[tf.Tensor, tf.Tensor]:
        name_of_part = Identity(f"{name}/{part}")
        both = tf.stack([count, total])
        counted, summed = tf.unstack(
            allreduce(both, op=Sum, name=name_of_part, process_set=process_set)
        )
        return counted, tf.math.divide_no_nan(summed, counted)

    _, of_all = average(count * mean, "mean")
    total, variance = average(squares + count * tf.square(mean - of_all), "variance")
    return total, of_all, variance


def _spread(value: tf.Tensor, inputs: tf.Tensor, axes: list[int]) -> tf.Tensor:
    """Gives a value of the channels the dimensions of the inputs."""
    for axis in sorted(axis % inputs.shape.rank for axis in axes):
        value = tf.expand_dims(value, axis)
    return value
