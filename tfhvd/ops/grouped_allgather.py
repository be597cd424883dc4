"""grouped_allgather: several tensors, each joined over the ranks, as one unit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import tensorflow as tf

from tfhvd.ops import _kernels
from tfhvd.ops._checks import check_has_first_dimension, to_tensors
from tfhvd.ops._gather_gradient import gather_gradients
from tfhvd.ops._gradient import gradient_of
from tfhvd.ops.names import name_of
from tfhvd.runtime import process_sets

if TYPE_CHECKING:
    from tfhvd.compat.types import TensorLike


def grouped_allgather(
    tensors: Sequence[TensorLike],
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: process_sets.ProcessSet = process_sets.global_process_set,
) -> list[tf.Tensor]:
    """Joins each of several tensors over the ranks: all of them or, if one does not fit, none.

    Differentiable, as `allgather` is.

    Args:
        tensors: of shapes [n, ...]; n may differ between ranks and be 0, the rest may not. Types
            may be mixed: any type of number, and bool.
        name: the group's identity: ranks meet by it. Made from the first tensor's name if not
            given.
        ignore_name_scope: leaves out the name scope, which in a graph stands before a given name.
        process_set: the ranks that take part.

    Returns:
        A list of tensors of the same types, of shapes [sum of the n, ...], in the same order.

    Raises:
        NotInitializedError: before `init`.
        NotImplementedError: for IndexedSlices.
        TypeError: for a type that does not travel.
        ValueError: for a scalar, or no tensors.
        tf.errors.InvalidArgumentError: if anything of the group does not fit between the ranks.
        tf.errors.AbortedError: if a rank has failed or left.

    Example:
        >>> labels, scores = hvd.grouped_allgather([labels, scores])
    """
    set_id = process_sets.checked_id(process_set)
    dense = to_tensors(tensors, "grouped_allgather")
    for tensor in dense:
        check_has_first_dimension(tensor, "grouped_allgather")
    key = name_of(
        "grouped_allgather", name, dense[0], set_id=set_id, ignore_name_scope=ignore_name_scope
    )
    return _kernels.gather_all(dense, key, set_id)


@gradient_of("TfhvdGroupedAllgather")
def _gradient(forward: tf.Operation, *gradients: tf.Tensor) -> list[tf.Tensor]:
    return gather_gradients(forward, list(gradients))
