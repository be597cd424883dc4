"""The gradients of reductions: allreduce and reducescatter, one tensor or a group.

An allreduce is y = post * R(pre * x_0, pre * x_1, ...), y is on every rank, and what follows it on
each rank is part of the loss. So the gradient of y is the sum of all ranks' gradients of it. After
a reducescatter each row of y is on one rank only: the gradients of the rows are gathered instead.
"""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from tfhvd.ops import _kernels, compiled
from tfhvd.ops._gradient import factors_of, filled
from tfhvd.ops.names import Name, name_of_gradient, set_of, tensors_of
from tfhvd.ops.reduce_op import Adasum, Average, Max, Min, ReduceOp, Sum
from tfhvd.runtime.process_sets import by_id

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


def reduction_gradients(forward: tf.Operation, gradients: list[tf.Tensor]) -> list[tf.Tensor]:
    """Returns the gradients of a reduction's inputs, for one tensor or a group.

    Args:
        forward: the operation, with its inputs, outputs and attributes.
        gradients: of its outputs; None for those that nothing depends on.
    """
    prescale, postscale = factors_of(forward)
    of = _Reduction(
        inputs=tensors_of(forward),
        outputs=compiled.results_of(forward),
        scatters="scatter" in forward.type,
        op=ReduceOp(forward.get_attr("reduce_op")),
        prescale=prescale,
        postscale=postscale,
        name=name_of_gradient(forward),
        set_id=set_of(forward),
    )
    gradients = filled(gradients, of.outputs)
    if of.op in (Average, Sum):
        return _of_sum(of, gradients)
    if of.op == Adasum:
        return _of_adasum(of, gradients)
    return (_of_extreme if of.op in (Min, Max) else _of_product)(of, gradients)


def _of_sum(of: _Reduction, gradients: list[tf.Tensor]) -> list[tf.Tensor]:
    if not of.scatters:
        return _kernels.reduce(gradients, of.op, of.name, of.set_id, of.prescale, of.postscale)
    gathered, ranks = _kernels.gather_counted(gradients, of.name, of.set_id)
    factor = of.prescale * of.postscale
    if of.op == Average:
        factor /= tf.cast(ranks, tf.float64)
    return [_scaled(g, factor) for g in gathered]


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
    index = _kernels.index_in(of.set_id)
    factor = of.postscale
    if of.prescale != 1.0:
        factor *= tf.cast(of.prescale, tf.float64) ** tf.cast(_kernels.size(of.set_id), tf.float64)
    results = []
    for i, (x, total) in enumerate(zip(of.inputs, totals)):
        wide = tf.float32 if x.dtype in _HALF else x.dtype
        all_x = _inputs_of_all_ranks(of, i, wide, absent=1)
        before = tf.gather(tf.math.cumprod(all_x, exclusive=True), index)
        after = tf.gather(tf.math.cumprod(all_x, exclusive=True, reverse=True), index)
        gradient = tf.cast(total, wide) * before * after * tf.cast(factor, wide)
        results.append(tf.cast(gradient, x.dtype))
    return results


def _of_adasum(of: _Reduction, gradients: list[tf.Tensor]) -> list[tf.Tensor]:
    """Goes back through the tree of ranks, all of whose inputs every rank gets for that."""
    totals = _kernels.reduce(gradients, Sum, of.name, of.set_id)
    size, index = by_id(of.set_id).size(), _kernels.index_in(of.set_id)
    factor = of.postscale * of.prescale  # of what is scaled alike the combination is scaled too
    results = []
    for i, (x, total) in enumerate(zip(of.inputs, totals)):
        all_x = _inputs_of_all_ranks(of, i, tf.float64, absent=0)
        with tf.GradientTape() as tape:
            tape.watch(all_x)
            combined = _adasum(tf.unstack(all_x, size))
        weights = tf.cast(total, tf.float64) * factor
        gradient = tf.gather(tape.gradient(combined, all_x, output_gradients=weights), index)
        results.append(tf.cast(gradient, x.dtype))
    return results


def _adasum(vectors: list[tf.Tensor]) -> tf.Tensor:
    """Combines the ranks' vectors as cc/collectives/adasum.h does."""
    while len(vectors) > 1:
        pairs = [_adasum_of_two(a, b) for a, b in zip(vectors[::2], vectors[1::2])]
        vectors = pairs + vectors[2 * len(pairs) :]
    return vectors[0]


def _adasum_of_two(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    dot = tf.reduce_sum(a * b)
    # A vector of zeros leaves the other one as it is.
    x = 1 - tf.math.divide_no_nan(dot, 2 * tf.reduce_sum(a * a))
    y = 1 - tf.math.divide_no_nan(dot, 2 * tf.reduce_sum(b * b))
    return a * x + b * y


def _inputs_of_all_ranks(of: _Reduction, i: int, dtype: tf.DType, absent: float) -> tf.Tensor:
    """Gathers one of the inputs, a row for each rank of the process set; of shape [ranks, ...].

    In the row of a rank that has joined is `absent`: it sends nothing or, where XLA has fixed the
    shapes, zeros, also for its index.
    """
    x = of.inputs[i]
    index = tf.cast(tf.reshape(1 + _kernels.index_in(of.set_id), [1, 1]), tf.int64)
    rows, places = _kernels.gather_all(
        [x[tf.newaxis], index], of.name.part(f"factors_{i}"), of.set_id
    )
    rows, fill = tf.cast(rows, dtype), tf.cast(absent, dtype)
    if compiled.is_compiled():
        one_a_row = tf.concat([[-1], tf.ones([tf.rank(x)], tf.int32)], 0)
        return tf.where(tf.reshape(places > 0, one_a_row), rows, fill)
    everyone = tf.concat([[_kernels.size(of.set_id)], tf.shape(x)], 0)
    return tf.tensor_scatter_nd_update(tf.fill(everyone, fill), places - 1, rows)


def _scaled(x: tf.Tensor, factor: tf.Tensor | float) -> tf.Tensor:
    if isinstance(factor, float) and factor == 1.0:
        return x
    wide = tf.float32 if x.dtype in _HALF else x.dtype
    return tf.cast(tf.cast(x, wide) * tf.cast(factor, wide), x.dtype)
