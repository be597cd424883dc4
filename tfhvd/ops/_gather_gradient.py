"""The gradients of allgathers: a rank gets its own rows of the gradients' sum."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfhvd.ops import _compiled, _kernels
from tfhvd.ops._names import name_of_gradient
from tfhvd.ops.reduce_op import Sum
from tfhvd.process_sets import by_id


def gather_gradients(forward: Any, gradients: list[Any]) -> list[tf.Tensor]:
    """Returns the gradients of an allgather's inputs, for one tensor or a group.

    Args:
        forward: the operation, with its inputs, outputs and attributes.
        gradients: of its outputs; None for those that nothing depends on.
    """
    name, set_id = name_of_gradient(forward), forward.get_attr("process_set_id")
    rows = [tf.shape(x, out_type=tf.int64)[0] for x in forward.inputs]
    # Also where all are known to have as many: other ranks may not have compiled their function.
    all_rows = _kernels.gather(tf.stack(rows)[tf.newaxis], name.part("rows"), set_id)
    if _compiled.has_compiled(forward):
        begins = [n * by_id(set_id).rank() for n in rows]
    else:
        begins = tf.unstack(tf.reduce_sum(all_rows[: by_id(set_id).rank()], axis=0), num=len(rows))
    gradients = [
        tf.zeros_like(y) if g is None else tf.convert_to_tensor(g)
        for g, y in zip(gradients, forward.outputs)
    ]
    totals = _kernels.reduce(gradients, Sum, name, set_id)
    return [total[begins[i] : begins[i] + rows[i]] for i, total in enumerate(totals)]
