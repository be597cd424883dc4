"""One gradient: a tensor, IndexedSlices, or None if a variable has none."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tfhvd.compat import graphs
from tfhvd.gradients.indexed_slices import is_sparse

if TYPE_CHECKING:
    from tfhvd.compat.types import Gradient


def scaled(gradient: Gradient, factor: float | tf.Tensor) -> Gradient:
    """Multiplies a gradient.

    Args:
        gradient: a tensor or IndexedSlices of any shape and type, or None.
        factor: a float; or a tensor without dimensions, for floating-point gradients, which gives
            zeros if it is 0, also of NaN.
    """
    if gradient is None or (isinstance(factor, float) and factor == 1.0):
        return gradient
    if is_sparse(gradient):
        values = scaled(gradient.values, factor)
        return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    if isinstance(factor, float):
        return gradient * tf.cast(factor, gradient.dtype)
    return tf.math.multiply_no_nan(gradient, tf.cast(factor, gradient.dtype))


def values_of(gradient: Gradient) -> tf.Tensor:
    """Returns the numbers of a gradient that is there."""
    return gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient


def with_values(gradient: Gradient, values: tf.Tensor | None) -> Gradient:
    """Returns the gradient with other numbers in their place; None leaves it."""
    if values is None:
        return gradient
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    return values


def after_all(gradients: Iterable[Gradient]) -> AbstractContextManager[Any]:
    """Makes the operations of a graph that are made inside wait until the gradients are there.

    For what has an effect and does not need the gradients themselves: in a function that takes its
    data from an iterator it would run, too, in the step that finds none left.
    """
    return tf.control_dependencies([values_of(g) for g in gradients if g is not None])


def after(operation: tf.Operation, gradients: list[Gradient], holds: bool) -> list[Gradient]:
    """Returns gradients of a graph with which an operation runs that nothing depends on.

    Args:
        operation: a function runs it by itself, a session for one of the gradients.
        gradients: any.
        holds: whether none of them is there before it has run.
    """
    if not holds and graphs.runs_effects(operation.graph):
        return gradients
    held = [i for i, gradient in enumerate(gradients) if gradient is not None]
    held = held if holds else held[:1]
    with tf.control_dependencies([operation]):
        return [
            with_values(g, tf.identity(values_of(g))) if i in held else g
            for i, g in enumerate(gradients)
        ]
