"""The gradients of reductions.

A reduction is y = post * R(pre * x_0, pre * x_1, ...), y is on every rank, and what follows it on
each rank is part of the loss. So the gradient of y is the sum of all ranks' gradients of it.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfhvd import process
from tfhvd.ops import _kernels
from tfhvd.ops._names import Name, name_of_gradient
from tfhvd.ops.reduce_op import Average, Max, Min, ReduceOp, Sum

_HALF = (tf.float16, tf.bfloat16)


def reduction_gradients(forward: Any, gradients: list[Any]) -> list[tf.Tensor]:
    """Returns the gradients of a reduction's inputs, for one tensor or a group.

    Args:
        forward: the operation, with its inputs, outputs and attributes.
        gradients: of its outputs; None for those that nothing depends on.
    """
    op = ReduceOp(forward.get_attr("reduce_op"))
    prescale = float(forward.get_attr("prescale_factor"))
    postscale = float(forward.get_attr("postscale_factor"))
    set_id = forward.get_attr("process_set_id")
    name = name_of_gradient(forward)
    gradients = [
        tf.zeros_like(y) if g is None else tf.convert_to_tensor(g)
        for g, y in zip(gradients, forward.outputs)
    ]
    if op in (Average, Sum):
        return _kernels.reduce(gradients, op, name, set_id, prescale, postscale)
    rule = _of_extreme if op in (Min, Max) else _of_product
    return rule(forward, gradients, op, prescale, postscale, name, set_id)


def _of_extreme(
    forward: Any,
    gradients: list[tf.Tensor],
    op: ReduceOp,
    prescale: float,
    postscale: float,
    name: Name,
    set_id: int,
) -> list[tf.Tensor]:
    """Gives each element's gradient to the ranks that have the extreme value, in equal parts."""
    inputs = list(forward.inputs)
    extremes = list(forward.outputs)
    if prescale != 1.0 or postscale != 1.0:  # The outputs are rounded: compare what was put in.
        opposite = Max if op == Min else Min
        extremes = _kernels.reduce(
            inputs, op if prescale >= 0 else opposite, name.part("extreme"), set_id
        )
    mine = [tf.cast(x == y, g.dtype) for x, y, g in zip(inputs, extremes, gradients)]
    sums = _kernels.reduce([*gradients, *mine], Sum, name, set_id)
    totals, holders = sums[: len(gradients)], sums[len(gradients) :]
    factor = prescale * postscale
    return [
        tf.math.divide_no_nan(g * m, n) * tf.cast(factor, g.dtype)
        for g, m, n in zip(totals, mine, holders)
    ]


def _of_product(
    forward: Any,
    gradients: list[tf.Tensor],
    op: ReduceOp,
    prescale: float,
    postscale: float,
    name: Name,
    set_id: int,
) -> list[tf.Tensor]:
    """Multiplies by the product of the other ranks' elements, without dividing (by zero)."""
    del op
    totals = _kernels.reduce(gradients, Sum, name, set_id)
    size, rank = process.size(), process.rank()
    factor = postscale * prescale**size
    results = []
    for i, (x, total) in enumerate(zip(forward.inputs, totals)):
        all_x = _kernels.gather(x[tf.newaxis], name.part(f"factors_{i}"), set_id)
        wide = tf.float32 if x.dtype in _HALF else x.dtype
        all_x = tf.cast(all_x, wide)
        before = tf.math.cumprod(all_x, exclusive=True)[rank]
        after = tf.math.cumprod(all_x, exclusive=True, reverse=True)[rank]
        gradient = tf.cast(total, wide) * before * after * tf.cast(factor, wide)
        results.append(tf.cast(gradient, x.dtype))
    return results
