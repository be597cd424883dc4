"""The kernels of the op library: the only caller of them. No checks, no gradients."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import tensorflow as tf

from tfhvd import _compat_graphs
from tfhvd._library import load_tf_ops
from tfhvd.ops import _compiled
from tfhvd.ops._names import Name
from tfhvd.ops._threads import in_turn
from tfhvd.ops.reduce_op import Average, ReduceOp


def on_device(name: str) -> AbstractContextManager[Any]:
    """Places what is inside; "" leaves that to whoever called (tf.device(None) would not)."""
    return tf.device(name) if name else nullcontext()


def reduce(
    tensors: Sequence[tf.Tensor],
    op: ReduceOp,
    name: Name,
    process_set_id: int,
    prescale: float = 1.0,
    postscale: float = 1.0,
) -> list[tf.Tensor]:
    """Reduces each tensor over the ranks; several are agreed, and fail, as one."""
    attributes = _reduction(op, prescale, postscale)
    return _one_or_group("allreduce", tensors, name, process_set_id, **attributes)


def average(
    tensors: Sequence[tf.Tensor],
    weight: tf.Tensor,
    name: Name,
    process_set_id: int,
    prescale: float = 1.0,
    postscale: float = 1.0,
) -> list[tf.Tensor]:
    """Averages each tensor over the ranks, each of which says how much it counts."""
    compiled = _compiled.is_compiled()
    with in_turn(name, process_set_id):
        outputs = load_tf_ops().tfhvd_weighted_allreduce(
            list(tensors),
            weight,
            deferred=compiled,
            **_reduction(Average, prescale, postscale),
            **_identity(name, process_set_id),
        )
    return _in_its_order(list(outputs), compiled)


def reduce_scatter(
    tensors: Sequence[tf.Tensor],
    op: ReduceOp,
    name: Name,
    process_set_id: int,
    prescale: float = 1.0,
    postscale: float = 1.0,
) -> list[tf.Tensor]:
    """Reduces each tensor over the ranks and returns this rank's rows of each."""
    attributes = _reduction(op, prescale, postscale)
    return _one_or_group("reducescatter", tensors, name, process_set_id, **attributes)


def gather(tensor: tf.Tensor, name: Name, process_set_id: int) -> tf.Tensor:
    """Joins the ranks' tensors along the first dimension."""
    return gather_all([tensor], name, process_set_id)[0]


def gather_all(tensors: Sequence[tf.Tensor], name: Name, process_set_id: int) -> list[tf.Tensor]:
    """Joins the ranks' tensors, each for itself; several are agreed, and fail, as one."""
    return _one_or_group("allgather", tensors, name, process_set_id)


def exchange(
    tensor: tf.Tensor, splits: tf.Tensor | None, name: Name, process_set_id: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Sends splits[r] rows to rank r (None: equally many); returns what came, and from whom."""
    if splits is None:
        splits = tf.zeros([0], tf.int32)
    compiled = _compiled.is_compiled()
    with in_turn(name, process_set_id):
        output, received = load_tf_ops().tfhvd_alltoall(
            tensor, splits, deferred=compiled, **_identity(name, process_set_id)
        )
    [output] = _in_its_order([output], compiled)
    return output, received


def broadcast(tensor: tf.Tensor, root: int, name: Name, process_set_id: int) -> tf.Tensor:
    """Returns the root's tensor."""
    return broadcast_all([tensor], root, name, process_set_id)[0]


def broadcast_all(
    tensors: Sequence[tf.Tensor], root: int, name: Name, process_set_id: int
) -> list[tf.Tensor]:
    """Returns the root's tensors; several are agreed, and fail, as one."""
    return _one_or_group("broadcast", tensors, name, process_set_id, root_rank=root)


def barrier(name: Name, process_set_id: int) -> None:
    """Waits for every rank."""
    with in_turn(name, process_set_id):
        load_tf_ops().tfhvd_barrier(**_identity(name, process_set_id))
    if _compiled.is_compiled():
        _compiled.put_in_order()


def _one_or_group(
    kind: str, tensors: Sequence[tf.Tensor], name: Name, process_set_id: int, **attributes: Any
) -> list[tf.Tensor]:
    library = load_tf_ops()
    compiled = _compiled.is_compiled()
    attributes.update(_identity(name, process_set_id), deferred=compiled)
    with in_turn(name, process_set_id):
        if len(tensors) == 1:
            outputs = [getattr(library, f"tfhvd_{kind}")(tensors[0], **attributes)]
        else:
            outputs = list(getattr(library, f"tfhvd_grouped_{kind}")(list(tensors), **attributes))
    return _in_its_order(outputs, compiled)


def _reduction(op: ReduceOp, prescale: float, postscale: float) -> dict[str, Any]:
    return {
        "reduce_op": int(op),
        "prescale_factor": repr(prescale),
        "postscale_factor": repr(postscale),
    }


def _identity(name: Name, process_set_id: int) -> dict[str, Any]:
    return {
        "tensor_name": name.text,
        "anonymous": name.anonymous,
        "process_set_id": process_set_id,
    }


def _in_its_order(outputs: list[tf.Tensor], compiled: bool) -> list[tf.Tensor]:
    """Lets a collective of a function run as soon as its input is there; gives its results.

    TensorFlow runs stateful operations of a function one after the other unless told otherwise; the
    engine needs no order, and would have one tensor at a time to fuse.
    """
    if tf.executing_eagerly():
        return outputs
    _compat_graphs.run_independently(outputs[0].op)
    return _compiled.finish_unless_deferred(outputs) if compiled else outputs
