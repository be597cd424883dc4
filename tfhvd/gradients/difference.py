"""Has ranks fail that have gradients of different variables, and names the variables.

Gradients that are reduced together have the name of the first one, and only their shapes are
compared: a rank without the second gradient, and one without the third, could reduce one with the
other. So if a rank lacks some, a marker travels with the others: it has no elements, and a shape
that says which gradients are missing. The name is then that of the first possible gradient, so that
such ranks use the same name as ranks that lack none.

The engine says what the ranks' collectives had, such as numbers of tensors. Which variables these
are of, each rank knows of itself: it does not ask the others, of which some may run in a graph, and
would not answer.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import tensorflow as tf

from tfhvd.compat.variables import variable_name
from tfhvd.gradients.indexed_slices import is_sparse

if TYPE_CHECKING:
    from tfhvd.compat.types import Gradient, Variable

_DIMENSIONS = 3  # of a marker that say which gradients are missing, of 15 bits each
# What ranks are told whose collectives differ, without what it advises for collectives.
_AGREED = re.compile(r"Mismatched .* Received: .* Expected: .*?\.", re.S)
_MARKER = re.compile(r"tensor \d+ of the group, float32\[0(, \d+){3}\]")  # as it is shown there
_NAMED = 8  # variables


def marker(
    gradients: Sequence[Gradient], own: Sequence[bool]
) -> tuple[int | None, tf.Tensor] | None:
    """Returns a marker, and whose name its group has; None if no gradient is missing.

    The name is that of the last gradient, with which the backward pass begins, if that is missing;
    else the group keeps its name: None.

    Graphs have none: where another gradient is missing on each rank, a bucket may add them up.

    Args:
        gradients: of all variables.
        own: which of these stay this rank's own: others may have more of them, or fewer.
    """
    shared = [i for i, left in enumerate(own) if not left]
    missing = bytes(gradients[i] is None for i in shared)
    if not any(missing) or not tf.executing_eagerly():
        return None
    digest = hashlib.sha256(missing).digest()
    shape = [int.from_bytes(digest[2 * i :][:2], "big") >> 1 for i in range(_DIMENSIONS)]
    last = max(i for i in shared if not is_sparse(gradients[i]))
    return last if gradients[last] is None else None, tf.zeros([0, *shape])


@contextlib.contextmanager
def named(gradients: Sequence[Gradient], variables: Sequence[Variable]) -> Iterator[None]:
    """Has an eager reduction that ranks cannot agree on name this rank's variables.

    Args:
        gradients: what this rank reduces.
        variables: whose they are, in the same order.

    Raises:
        tf.errors.InvalidArgumentError: as the reduction does.
    """
    try:
        yield
    except tf.errors.InvalidArgumentError as error:
        said = _AGREED.search(error.message)
        if said is None or not tf.executing_eagerly():
            raise
        text = (
            f"{_MARKER.sub('no gradient of some variable', said[0])} {_here(gradients, variables)}"
        )
        raise tf.errors.InvalidArgumentError(error.node_def, error.op, text) from None


def _here(gradients: Sequence[Gradient], variables: Sequence[Variable]) -> str:
    none = [i for i, gradient in enumerate(gradients) if gradient is None]
    rows = [i for i, gradient in enumerate(gradients) if is_sparse(gradient)]
    said = [f"there is no gradient of {_labels(none, variables)}"] if none else []
    said += [f"there are tf.IndexedSlices for {_labels(rows, variables)}"] if rows else []
    here = ", and ".join(said) or "every variable has a dense gradient"
    return (
        f"On this rank {here}. Compute the same loss on every rank, and multiply by 0.0 a part of "
        "it that does not count; or pass unconnected_gradients=tf.UnconnectedGradients.ZERO for "
        "missing gradients, sparse_as_dense=True for tf.IndexedSlices."
    )


def _labels(positions: Sequence[int], variables: Sequence[Variable]) -> str:
    named = [variable_name(variables[i]) or f"variable {i}" for i in positions[:_NAMED]]
    more = f" and {len(positions) - _NAMED} more" if len(positions) > _NAMED else ""
    return ", ".join(named) + more
