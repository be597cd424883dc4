"""The gradients of allgathers: a rank gets its own rows of the gradients' sum.

TensorFlow does not know the first of these rows when it makes a graph smaller, so every rank has
the same graph. If one rank left out an operation, all others would wait for it.
"""

from __future__ import annotations

import tensorflow as tf

from tfhvd.ops import _kernels, compiled
from tfhvd.ops._gradient import filled
from tfhvd.ops.names import Name, name_of_gradient, set_of, tensors_of
from tfhvd.ops.reduce_op import Sum


def gather_gradients(forward: tf.Operation, gradients: list[tf.Tensor]) -> list[tf.Tensor]:
    """Returns the gradients of an allgather's inputs, for one tensor or a group.

    Args:
        forward: the operation, with its inputs, outputs and attributes.
        gradients: of its outputs; None for those that nothing depends on.
    """
    name, set_id = name_of_gradient(forward), set_of(forward)
    rows = [tf.shape(x, out_type=tf.int64)[0] for x in tensors_of(forward)]
    # Also if all are known to have as many: other ranks may not have compiled their function.
    before, _ = rows_of_ranks(tf.stack(rows), name.part("rows"), set_id)
    if compiled.has_compiled(forward):
        index = tf.cast(_kernels.index_in(set_id), tf.int64)
        begins = [n * index for n in rows]
    else:
        begins = tf.unstack(before, num=len(rows))
    totals = _kernels.reduce(filled(gradients, forward.outputs), Sum, name, set_id)
    return [total[begins[i] : begins[i] + rows[i]] for i, total in enumerate(totals)]


def rows_of_ranks(mine: tf.Tensor, name: Name, set_id: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Tells every rank what each one has.

    Args:
        mine: numbers of this rank, int64 of shape [n].
        name: the collective's.
        set_id: the number of the process set.

    Returns:
        The sums of the numbers of the ranks before this one, of shape [n]; and the numbers of all
        ranks that have not joined, of shape [ranks, n].
    """
    index = tf.cast(_kernels.index_in(set_id), tf.int64)
    every = _kernels.gather(tf.concat([[index], mine], 0)[tf.newaxis], name, set_id)
    numbers = every[:, 1:]
    is_before = every[:, :1] < index
    return tf.reduce_sum(tf.where(is_before, numbers, tf.zeros_like(numbers)), 0), numbers
