"""counted_allgather: tensors joined over the ranks, and how many ranks that were."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from tfhvd.ops import _kernels
from tfhvd.ops._checks import to_tensors
from tfhvd.ops._gather_gradient import gather_gradients
from tfhvd.ops._gradient import gradient_of
from tfhvd.ops.names import name_of
from tfhvd.runtime import process_sets


def counted_allgather(
    tensors: Sequence[tf.Tensor],
    name: str,
    process_set: process_sets.ProcessSet = process_sets.global_process_set,
) -> tuple[list[tf.Tensor], tf.Tensor]:
    """Joins each of several tensors over the ranks, as one unit, and counts these ranks.

    For an average of what is gathered. An elastic job may lose ranks, or let in others, at any
    time: the number that `size` gives then is not that of the ranks whose rows these are.

    Args:
        tensors: as of `grouped_allgather`.
        name: the group's identity.
        process_set: the ranks that take part.

    Returns:
        The joined tensors, and the number of ranks, with those that have joined: an int32 scalar.

    Raises:
        NotInitializedError: before `init`.
        tf.errors.InvalidArgumentError: if anything of the group does not fit between the ranks.
        tf.errors.AbortedError: if a rank has failed or left.

    Example:
        >>> [rows], ranks = counted_allgather([rows], name="rows")
    """
    set_id = process_sets.checked_id(process_set)
    given = to_tensors(tensors, "counted_allgather")
    key = name_of("counted_allgather", name, given[0], set_id=set_id)
    return _kernels.gather_counted(given, key, set_id)


@gradient_of("TfhvdCountedAllgather")
def _gradient(forward: tf.Operation, *gradients: tf.Tensor) -> list[tf.Tensor]:
    return gather_gradients(forward, list(gradients[:-1]))
