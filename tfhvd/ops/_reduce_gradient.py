"""The gradients of reductions: allreduce and reducescatter, one tensor or a group.

An allreduce is y = post * R(pre * x_0, pre * x_1, ...), y is on every rank, and what follows it on
each rank is part of the loss. So the gradient of y is the sum of all ranks' gradients of it. After
a reducescatter each row of y is on one rank only: the gradients of the rows are gathered instead.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf

from tfhvd.ops import _compiled, _kernels
from tfhvd.ops._names import Name, name_of_gradient
from tfhvd.ops.reduce_op import Adasum, Average, Max, Min, ReduceOp, Sum
from tfhvd.process_sets import by_id

_HALF = (tf.float16, tf.bfloat16)


@dataclasses.dataclass(frozen=True)
class _Reduction:
    """The operation that gradients are wanted of."""

    inputs: list[tf.Tensor]
    outputs: list[tf.Tensor]
    scatters: bool
    op: ReduceOp
    prescale: float
    postscale: float
    name: Name  # of the gradients' collective
    set_id: int


def reduction_gradients(forward: Any, gradients: list[Any]) -> list[tf.Tensor]:
    """Returns the gradients of a reduction's inputs, for one tensor or a group.

    Args:
        forward: the operation, with its inputs, outputs and attributes.
        gradients: of its outputs; None for those that nothing depends on.
    """
    of = _Reduction(
        inputs=list(forward.inputs),
        outputs=_compiled.results_of(forward),
        scatters="scatter" in forward.type,
        op=ReduceOp(forward.get_attr("reduce_op")),
        prescale=float(forward.get_attr("prescale_factor")),
        postscale=float(forward.get_attr("postscale_factor")),
        name=name_of_gradient(forward),
        set_id=forward.get_attr("process_set_id"),
    )
    if of.op == Adasum:
        raise LookupError(
            "An allreduce with op=hvd.Adasum has no gradient. Use hvd.Sum or Average."
        )
    gradients = [
        tf.zeros_like(y) if g is None else tf.convert_to_tensor(g)
        for g, y in zip(gradients, of.outputs)
    ]
    if of.op in (Average, Sum):
        return _of_sum(of, gradients)
    return (_of_extreme if of.op in (Min, Max) else _of_product)(of, gradients)


def _of_sum(of: _Reduction, gradients: list[tf.Tensor]) -> list[tf.Tensor]:
    if not of.scatters:
        return _kernels.reduce(gradients, of.op, of.name, of.set_id, of.prescale, of.postscale)
    factor = of.prescale * of.postscale / (by_id(of.set_id).size() if of.op == Average else 1)
    return [_scaled(g, factor) for g in _kernels.gather_all(gradients, of.name, of.set_id)]


def _of_extreme(of: _Reduction, gradients: list[tf.Tensor]) -> list[tf.Tensor]:
    """Gives each element's gradient to the ranks that have the extreme value, in equal parts."""
    extremes = of.outputs
    if of.scatters or of.prescale != 1.0 or of.postscale != 1.0:
        # The outputs are elsewhere, or rounded: compare what was put in.
        opposite = Max if of.op == Min else Min
        extremes = _kernels.reduce(
            of.inputs, of.op if of.prescale >= 0 else opposite, of.name.part("extreme"), of.set_id
        )
    # Not ==, which asks in a graph of TensorFlow 1 whether they are one object.
    mine = [tf.cast(tf.equal(x, y), g.dtype) for x, y, g in zip(of.inputs, extremes, gradients)]
    if of.scatters:
        totals = _kernels.gather_all(gradients, of.name, of.set_id)
        holders = _kernels.reduce(mine, Sum, of.name.part("holders"), of.set_id)
    else:
        sums = _kernels.reduce([*gradients, *mine], Sum, of.name, of.set_id)
        totals, holders = sums[: len(gradients)], sums[len(gradients) :]
    factor = of.prescale * of.postscale
    return [
        tf.math.divide_no_nan(g * m, n) * tf.cast(factor, g.dtype)
        for g, m, n in zip(totals, mine, holders)
    ]


def _of_product(of: _Reduction, gradients: list[tf.Tensor]) -> list[tf.Tensor]:
    """Multiplies by the product of the other ranks' elements, without dividing (by zero)."""
    if of.scatters:
        totals = _kernels.gather_all(gradients, of.name, of.set_id)
    else:
        totals = _kernels.reduce(gradients, Sum, of.name, of.set_id)
    size, rank = by_id(of.set_id).size(), by_id(of.set_id).rank()
    factor = of.postscale * of.prescale**size
    results = []
    for i, (x, total) in enumerate(zip(of.inputs, totals)):
        all_x = _kernels.gather(x[tf.newaxis], of.name.part(f"factors_{i}"), of.set_id)
        wide = tf.float32 if x.dtype in _HALF else x.dtype
        all_x = tf.cast(all_x, wide)
        before = tf.math.cumprod(all_x, exclusive=True)[rank]
        after = tf.math.cumprod(all_x, exclusive=True, reverse=True)[rank]
        gradient = tf.cast(total, wide) * before * after * tf.cast(factor, wide)
        results.append(tf.cast(gradient, x.dtype))
    return results


def _scaled(x: tf.Tensor, factor: float) -> tf.Tensor:
    if factor == 1.0:
        return x
    wide = tf.float32 if x.dtype in _HALF else x.dtype
    return tf.cast(tf.cast(x, wide) * tf.cast(factor, wide), x.dtype)
