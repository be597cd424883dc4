"""alltoall: every rank sends some of its rows to every rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tensorflow as tf

from tfhvd.ops import _kernels, compiled
from tfhvd.ops._checks import check_has_first_dimension, to_splits, to_tensor
from tfhvd.ops._gradient import gradient_of
from tfhvd.ops.names import name_of, name_of_gradient, set_of
from tfhvd.runtime import process_sets

if TYPE_CHECKING:
    from tfhvd.compat.types import TensorLike


def alltoall(
    tensor: TensorLike,
    splits: TensorLike | None = None,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: process_sets.ProcessSet = process_sets.global_process_set,
) -> tf.Tensor | tuple[tf.Tensor, tf.Tensor]:
    """Sends the first rows to the first rank, the next ones to the second, and so on.

    Differentiable: gradients travel back the way that the rows came.

    Args:
        tensor: of shape [n, ...]; n may differ between ranks, the rest may not. Any type of number,
            or bool.
        splits: how many rows go to each rank, whole numbers of shape [size] with the sum n; may
            differ from step to step. None: as many to each.
        name: the collective's identity: ranks meet by it. Made from the tensor's name if not given.
        ignore_name_scope: leaves out the name scope, which in a graph stands before a given name.
        process_set: the ranks that take part.

    Returns:
        The rows that came, those of the first rank first: a tensor of the same type. With `splits`
        a tuple: this tensor, and how many rows came from each rank, int32 of shape [size].

    Raises:
        NotInitializedError: before `init`.
        NotImplementedError: for IndexedSlices.
        TypeError: for a type that does not travel, or splits that are no whole numbers.
        ValueError: for a scalar, or splits of another shape; in a graph for any that are known not
            to fit.
        tf.errors.InvalidArgumentError: on every rank, if type or shape do not fit between the
            ranks, some rank's splits not its tensor, or its rows cannot be divided evenly where no
            splits are given.
        tf.errors.AbortedError: if a rank has failed or left.

    Example:
        >>> rows = tf.fill([3], hvd.rank())
        >>> hvd.alltoall(rows, splits=[1, 2])  # two ranks: ([0, 1], [1, 1]), ([0, 0, 1, 1], [2, 2])
    """
    set_id = process_sets.checked_id(process_set)
    tensor = to_tensor(tensor, "alltoall")
    check_has_first_dimension(tensor, "alltoall")
    rows = None if splits is None else to_splits(splits, tensor, process_set)
    key = name_of("alltoall", name, tensor, set_id=set_id, ignore_name_scope=ignore_name_scope)
    output, received = _kernels.exchange(tensor, rows, key, set_id)
    return output if splits is None else (output, received)


@gradient_of("TfhvdAlltoall")
def _gradient(
    forward: tf.Operation, gradient: tf.Tensor, _: tf.Tensor | None
) -> list[tf.Tensor | None]:
    name, set_id = name_of_gradient(forward), set_of(forward)
    # In a compiled function all parts are equal.
    splits = None if compiled.has_compiled(forward) else forward.outputs[1]
    back, _ = _kernels.exchange(tf.convert_to_tensor(gradient), splits, name, set_id)
    return [back, None]
