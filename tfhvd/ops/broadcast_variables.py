"""broadcast_variables: gives variables the root's values."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, NamedTuple

import tensorflow as tf

from tfhvd.compat.variables import key_of, tf_variable, variable_name
from tfhvd.job import process
from tfhvd.ops import _kernels
from tfhvd.ops._checks import DTYPES, check_root
from tfhvd.ops.names import Name, name_of, name_of_variable
from tfhvd.runtime import process_sets
from tfhvd.runtime.elastic.replay import comers

if TYPE_CHECKING:
    from tfhvd.compat.types import Variable

_MOST_TOGETHER = 256 << 20  # bytes of results that wait to be assigned


class _Numbered(NamedTuple):
    """A variable by its number: its name differs if a model was built in another way."""

    path: str
    value: tf.Variable
    label: str | None


def by_number(variables: Iterable[Variable], without: Collection[int] = ()) -> list[_Numbered]:
    """Returns variables, to be broadcast by their places among all and not by their names.

    Args:
        variables: of either Keras or TensorFlow.
        without: the keys of those that are left out (see `key_of`).
    """
    return [
        _Numbered(str(n), tf_variable(v), variable_name(v))
        for n, v in enumerate(variables)
        if key_of(v) not in without
    ]


def broadcast_variables(
    variables: Iterable[Variable],
    root_rank: int,
    process_set: process_sets.ProcessSet = process_sets.global_process_set,
    inplace: bool = False,
) -> tf.Operation | None:
    """Gives every rank's variables the root's values, so that all ranks begin alike.

    Args:
        variables: of TensorFlow, Keras 3 or tf_keras; as many, in the same order, with the same
            shapes and types on every rank. Any numeric type.
        root_rank: the rank whose values are taken; its number in the job, also with a process set.
        process_set: the ranks that take part.
        inplace: taken for Horovod's sake: variables are always assigned to.

    Returns:
        In a graph of TensorFlow 1, the operation to run in a session. Otherwise None: eagerly and
        in a `tf.function`, the variables are assigned to without it.

    Raises:
        NotInitializedError: before `init`.
        ValueError: if the ranks have different numbers of variables, or the root is no rank.
        tf.errors.InvalidArgumentError: if a variable's shape or type differs between the ranks.
        tf.errors.AbortedError: if a rank has failed or left.

    Example:
        >>> hvd.broadcast_variables(model.variables, root_rank=0)
    """
    del inplace
    prefix = "broadcast_variables"
    values = _assign_all(list(variables), root_rank, prefix, process_set, comers.may_come_later)
    if tf.executing_eagerly() or tf.inside_function():  # a function runs its assignments itself
        return None
    return tf.group(*values, name=prefix)


def broadcast_(
    variables: Iterable[Variable],
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
        NotInitializedError: before `init`.
        ValueError: if the ranks have different numbers of variables, or the root is no rank.
        tf.errors.InvalidArgumentError: if a variable's shape or type differs between the ranks.
        tf.errors.AbortedError: if a rank has failed or left.

    Example:
        >>> [step] = hvd.broadcast_([optimizer.iterations], root_rank=0)
    """
    return _assign_all(list(variables), root_rank, name or "broadcast_", process_set)


def _assign_all(
    variables: list[Variable],
    root_rank: int,
    prefix: str,
    process_set: process_sets.ProcessSet,
    around: Callable[[dict[str, tf.Variable]], AbstractContextManager[object]] = nullcontext,
) -> list[tf.Tensor]:
    process.check_running()
    set_id = process_sets.checked_id(process_set)
    root = check_root(root_rank, process_set)
    targets = [tf_variable(variable) for variable in variables]
    names = [
        name_of_variable(prefix, position, variable_name(variable))
        for position, variable in enumerate(variables)
    ]
    if not tf.executing_eagerly():
        values = [tf.convert_to_tensor(target) for target in targets]
        results = _each(values, names, root, set_id)
    else:
        _check_counts(len(targets), prefix, set_id)
        with around({name.text: target for name, target in zip(names, targets)}):
            labels = [_label(variable, i) for i, variable in enumerate(variables)]
            results = _together([target.value() for target in targets], names, labels, root, set_id)
    return results if process.rank() == root else _assigned(targets, results)


def _assigned(targets: list[tf.Variable], values: list[tf.Tensor]) -> list[tf.Tensor]:
    results = []
    for target, value in zip(targets, values):
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


def _each(values: list[tf.Tensor], names: list[Name], root: int, set_id: int) -> list[tf.Tensor]:
    """Broadcasts each tensor on its own: a graph has them in progress at the same time."""
    return [
        _received(_kernels.broadcast(_sendable(value, name), root, name, set_id), value)
        for value, name in zip(values, names)
    ]


def _together(
    values: list[tf.Tensor], names: list[Name], labels: list[str], root: int, set_id: int
) -> list[tf.Tensor]:
    """Broadcasts tensors in few calls, each of which waits for the other ranks once."""
    results: list[tf.Tensor] = [None] * len(values)
    for group in _groups(values):
        sent = [_sendable(values[i], names[i]) for i in group]
        try:
            received = _kernels.broadcast_all(sent, root, names[group[0]], set_id)
        except tf.errors.InvalidArgumentError:
            # Every rank has got it, as for any mismatch, and looks for the variable.
            for i in group:
                try:
                    _each([values[i]], [names[i]], root, set_id)
                except tf.errors.InvalidArgumentError as error:
                    raise _of_models(error, labels[i]) from None
            raise
        for i, tensor in zip(group, received):
            results[i] = _received(tensor, values[i])
    return results


def _label(variable: Variable | _Numbered, position: int) -> str:
    """What a person calls a variable."""
    name = variable.label if isinstance(variable, _Numbered) else variable_name(variable)
    return name or f"variable {position}"


def _of_models(error: tf.errors.InvalidArgumentError, label: str) -> tf.errors.InvalidArgumentError:
    """The error of ranks whose models differ: it names the variable, and not the collective."""
    said = re.search(r"Received: .*? Expected: .*?\.", error.message, re.S)
    if said is None:
        return error
    text = (
        f"The ranks have built different models: the first variable that differs is '{label}' "
        f"here. {said[0]} Build the same model on every rank."
    )
    return tf.errors.InvalidArgumentError(error.node_def, error.op, text)


def _groups(values: list[tf.Tensor]) -> list[list[int]]:
    """Divides positions into groups: of one device, and no more than a part of its memory."""
    groups: list[list[int]] = []
    open_groups: dict[str, tuple[list[int], int]] = {}  # by device: the last group, its bytes
    for i, value in enumerate(values):
        size = value.shape.num_elements() * value.dtype.size
        group, there = open_groups.get(value.device, ([], 0))
        if not group or there + size > _MOST_TOGETHER:
            group, there = [], 0
            groups.append(group)
        group.append(i)
        open_groups[value.device] = (group, there + size)
    return groups


def _sendable(value: tf.Tensor, name: Name) -> tf.Tensor:
    """Returns a tensor of any numeric type, as bytes if collectives do not support its type."""
    if value.dtype in DTYPES:
        return value
    if value.dtype in (tf.string, tf.resource, tf.variant):
        raise TypeError(
            f"'{name.text}' cannot be broadcast. Received: {value.dtype.name}. "
            "Expected: a numeric type; use hvd.broadcast_object for others."
        )
    return tf.bitcast(value, tf.uint8)


def _received(sent: tf.Tensor, value: tf.Tensor) -> tf.Tensor:
    return sent if sent.dtype == value.dtype else tf.bitcast(sent, value.dtype)
