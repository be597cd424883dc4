"""Averages of 64-bit integers, whose sums may not fit into 64 bits.

Each value travels as its upper and its lower 32 bits. The ranks add up both, and divide the two
sums as one number of 96 bits. The result is the average, cut off towards zero, on every transport.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from tfhvd.ops._slices import scaled
from tfhvd.ops.names import Name
from tfhvd.ops.reduce_op import Average, ReduceOp, Sum
from tfhvd.ops.topology import size_when_run

# `_kernels.reduce`, or `_kernels.reduce_scatter`.
Reduce = Callable[[Sequence[tf.Tensor], ReduceOp, Name, int, float, float], "list[tf.Tensor]"]

_BITS = 32


def reduce_wide(
    reduce: Reduce,
    tensors: Sequence[tf.Tensor],
    op: ReduceOp,
    name: Name,
    set_id: int,
    scales: tuple[float, float],
) -> list[tf.Tensor]:
    """Reduces tensors, of which averages of 64-bit integers travel in halves.

    Args:
        reduce: the collective; either every rank keeps the whole result, or its rows.
        tensors: of any types.
        op: the reduction.
        name: the collective's.
        set_id: the number of the process set.
        scales: what the values are multiplied by, before and after.
    """
    wide = [i for i, t in enumerate(tensors) if op == Average and t.dtype in (tf.int64, tf.uint64)]
    narrow = [i for i in range(len(tensors)) if i not in wide]
    results: list[tf.Tensor] = [None] * len(tensors)
    if narrow:
        reduced = reduce([tensors[i] for i in narrow], op, name, set_id, *scales)
        for i, result in zip(narrow, reduced):
            results[i] = result
    if wide:
        halves = [_halves(scaled(tensors[i], scales[0])) for i in wide]
        name = name.part("halves") if narrow else name
        sums = reduce(halves, Sum, name, set_id, 1.0, 1.0)
        with tf.control_dependencies(sums):  # An elastic job may continue with fewer ranks.
            ranks = size_when_run(set_id)
        for i, total in zip(wide, sums):
            results[i] = scaled(_average(total, tf.cast(ranks, total.dtype)), scales[1])
    return results


def _halves(x: tf.Tensor) -> tf.Tensor:
    upper = tf.bitwise.right_shift(x, _number(_BITS, x.dtype))  # with its sign
    lower = tf.bitwise.bitwise_and(x, _number((1 << _BITS) - 1, x.dtype))
    return tf.stack([upper, lower], -1)


def _number(value: int, dtype: tf.DType) -> tf.Tensor:
    # TensorFlow's type promotion takes a large int of Python for one of 32 bits.
    return tf.constant(np.array(value, dtype.as_numpy_dtype))


def _average(total: tf.Tensor, ranks: tf.Tensor) -> tf.Tensor:
    upper, lower = tf.unstack(total, axis=-1)
    base = _number(1 << _BITS, total.dtype)
    high = upper // ranks
    rest = (upper - high * ranks) * base + lower
    low = rest // ranks
    average = high * base + low
    is_cut = (average < 0) & (rest > low * ranks)  # below the quotient, and not towards zero
    return average + tf.cast(is_cut, average.dtype)
