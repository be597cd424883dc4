"""The kernels of the op library: the only caller of them. No checks, no gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfhvd import _compat
from tfhvd._library import load_tf_ops
from tfhvd.ops._names import Name
from tfhvd.ops.reduce_op import ReduceOp


def reduce(
    tensors: Sequence[tf.Tensor],
    op: ReduceOp,
    name: Name,
    process_set_id: int,
    prescale: float = 1.0,
    postscale: float = 1.0,
) -> list[tf.Tensor]:
    """Reduces each tensor over the ranks; several are agreed, and fail, as one."""
    library = load_tf_ops()
    attributes = {
        "reduce_op": int(op),
        "prescale_factor": repr(prescale),
        "postscale_factor": repr(postscale),
        **_identity(name, process_set_id),
    }
    if len(tensors) == 1:
        outputs = [library.tfhvd_allreduce(tensors[0], **attributes)]
    else:
        outputs = list(library.tfhvd_grouped_allreduce(list(tensors), **attributes))
    _free_of_order(outputs[0])
    return outputs


def gather(tensor: tf.Tensor, name: Name, process_set_id: int) -> tf.Tensor:
    """Joins the ranks' tensors along the first dimension."""
    output = load_tf_ops().tfhvd_allgather(tensor, **_identity(name, process_set_id))
    _free_of_order(output)
    return output


def broadcast(tensor: tf.Tensor, root: int, name: Name, process_set_id: int) -> tf.Tensor:
    """Returns the root's tensor."""
    output = load_tf_ops().tfhvd_broadcast(
        tensor, root_rank=root, **_identity(name, process_set_id)
    )
    _free_of_order(output)
    return output


def barrier(name: Name, process_set_id: int) -> None:
    """Waits for every rank."""
    load_tf_ops().tfhvd_barrier(**_identity(name, process_set_id))


def _identity(name: Name, process_set_id: int) -> dict[str, Any]:
    return {
        "tensor_name": name.text,
        "anonymous": name.anonymous,
        "process_set_id": process_set_id,
    }


def _free_of_order(output: tf.Tensor) -> None:
    """Lets a collective of a function run as soon as its input is there.

    TensorFlow runs stateful operations of a function one after the other unless told otherwise; the
    engine needs no order, and would have one tensor at a time to fuse.
    """
    if not tf.executing_eagerly():
        _compat.run_independently(output.op)
