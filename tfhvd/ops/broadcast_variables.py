"""broadcast_variables: gives variables the root's values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from tfhvd import _compat, process, process_sets
from tfhvd.ops import _kernels
from tfhvd.ops._checks import DTYPES, check_root
from tfhvd.ops._names import Name, name_of, name_of_variable


def broadcast_variables(
    variables: Iterable[Any],
    root_rank: int,
    process_set: process_sets.ProcessSet = process_sets.global_process_set,
    inplace: bool = False,
) -> None:
    """Gives every rank's variables the root's values, so that all ranks begin alike.

    Args:
        variables: of TensorFlow, Keras 3 or tf_keras; as many, in the same order, with the same
            shapes and types on every rank. Any numeric type.
        root_rank: the rank whose values are taken; its number in the job, also with a process set.
        process_set: the ranks that take part.
        inplace: taken for Horovod's sake: variables are always assigned to.

    Raises:
        NotInitializedError: before `init`.
        ValueError: if the ranks have different numbers of variables, or the root is no rank.
        tf.errors.InvalidArgumentError: if a variable's shape or type differs between the ranks.
        tf.errors.AbortedError: if a rank is lost or has left.

    Example:
        >>> hvd.broadcast_variables(model.variables, root_rank=0)
    """
    del inplace
    _assign_all(list(variables), root_rank, "broadcast_variables", process_set)


def broadcast_(
    variables: Iterable[Any],
    root_rank: int,
    name: str | None = None,
    process_set: process_sets.ProcessSet = process_sets.global_process_set,
) -> list[tf.Tensor]:
    """Gives variables the root's values, as `broadcast_variables`, and returns these.

    Args:
        variables: as many, in the same order, with the same shapes and types on every rank.
        root_rank: the rank whose values are taken; its number in the job, also with a process set.
        name: what the collectives' names begin with.
        process_set: the ranks that take part.

    Returns:
        The values, as tensors.

    Raises:
        As `broadcast_variables`.

    Example:
        >>> [step] = hvd.broadcast_([optimizer.iterations], root_rank=0)
    """
    return _assign_all(list(variables), root_rank, name or "broadcast_", process_set)


def _assign_all(
    variables: list[Any], root_rank: int, prefix: str, process_set: process_sets.ProcessSet
) -> list[tf.Tensor]:
    process.check_running()
    set_id = process_sets.checked_id(process_set)
    root = check_root(root_rank, process_set)
    targets = [_compat.tf_variable(variable) for variable in variables]
    if tf.executing_eagerly():
        _check_counts(len(targets), prefix, set_id)
    results = []
    for position, (variable, target) in enumerate(zip(variables, targets)):
        name = name_of_variable(prefix, position, _compat.variable_name(variable))
        value = _broadcast_any(tf.convert_to_tensor(target), root, name, set_id)
        if process.rank() == root:
            results.append(value)
            continue
        update = target.assign(value, read_value=False)
        # In a graph the assignment runs only if something depends on it.
        with tf.control_dependencies([] if tf.executing_eagerly() else [update]):
            results.append(tf.identity(value))
    return results


def _check_counts(count: int, prefix: str, set_id: int) -> None:
    counts = _kernels.gather(tf.constant([count]), name_of("allgather", None), set_id).numpy()
    if counts.min() != counts.max():
        theirs = "; ".join(f"rank {rank}: {n}" for rank, n in enumerate(counts))
        raise ValueError(
            f"{prefix}: the ranks have different numbers of variables. Received: {theirs}. "
            "Expected: as many on every rank; build the same model, and make the optimizer's "
            "variables, on each."
        )


def _broadcast_any(value: tf.Tensor, root: int, name: Name, set_id: int) -> tf.Tensor:
    """Broadcasts a tensor of any numeric type, as bytes where its own does not travel."""
    if value.dtype in DTYPES:
        return _kernels.broadcast(value, root, name, set_id)
    if value.dtype in (tf.string, tf.resource, tf.variant):
        raise TypeError(
            f"'{name.text}' cannot be broadcast. Received: {value.dtype.name}. "
            "Expected: a numeric type; use hvd.broadcast_object for others."
        )
    sent = _kernels.broadcast(tf.bitcast(value, tf.uint8), root, name, set_id)
    return tf.bitcast(sent, value.dtype)
