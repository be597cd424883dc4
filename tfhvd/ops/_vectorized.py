"""Collectives in `tf.vectorized_map` and in `jacobian`, which run a function for a stack of inputs.

The calls of a function are not made one after the other, but as one with stacks for tensors. A
reduction of each element by itself, or a broadcast, of the stack is the stack of the calls'
results. No other collective is: it is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from tfhvd.compat import vectorization
from tfhvd.ops import _kernels
from tfhvd.ops._gradient import factors_of
from tfhvd.ops.names import Name
from tfhvd.ops.reduce_op import Adasum, ReduceOp


def add_rules() -> None:
    """Tells TensorFlow, once, what to do with collectives."""
    for kind in ("TfhvdAllreduce", "TfhvdGroupedAllreduce"):
        vectorization.add_rule(kind, _reduce)
    vectorization.add_rule("TfhvdWeightedAllreduce", _average)
    vectorization.add_rule("TfhvdBroadcast", _broadcast)
    vectorization.add_rule("TfhvdDone", lambda _, results: results)  # they are finished already
    for name in (
        *("Allgather", "GroupedAllgather", "Alltoall", "Barrier", "CountedAllgather"),
        *("FindNotFinite", "NoteNotFinite", "Reducescatter", "GroupedReducescatter"),
    ):
        vectorization.add_rule(f"Tfhvd{name}", _refuse)


def _reduce(of: tf.Operation, stacks: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    op = ReduceOp(of.get_attr("reduce_op"))
    if op == Adasum:
        return _refuse(of, stacks)
    return _kernels.reduce(stacks, op, _name(of), of.get_attr("process_set_id"), *factors_of(of))


def _average(of: tf.Operation, stacks: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    weight = of.inputs[-1]
    return _kernels.average(
        stacks[:-1], weight, _name(of), of.get_attr("process_set_id"), *factors_of(of)
    )


def _broadcast(of: tf.Operation, stacks: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    root, set_id = of.get_attr("root_rank"), of.get_attr("process_set_id")
    return [_kernels.broadcast(stacks[0], root, _name(of), set_id)]


def _refuse(of: tf.Operation, _: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    raise NotImplementedError(
        f"A collective ({of.type}) cannot run for all rows of a stack at once, as in "
        "tf.vectorized_map or jacobian. Use tf.map_fn, or "
        "jacobian(..., experimental_use_pfor=False)."
    )


def _name(of: tf.Operation) -> Name:
    # TensorFlow runs the function's own operation, too, and uses its result nowhere.
    text = of.get_attr("tensor_name").decode()
    return Name(f"{text}/stack", anonymous=of.get_attr("anonymous"))
