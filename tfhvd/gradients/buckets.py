"""Which gradients of a step one operation reduces.

An operation costs TensorFlow some ten microseconds, however little it reduces; so small gradients
share one. It begins when the last of them is there, and so they are taken in the order in which the
backward pass gives them: that of their variables, from the last to the first.

A bucket has the name of its first gradient. If the ranks' gradients differ, so that their buckets
do, the first buckets that differ begin with the same gradient: the ranks meet, and are told.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import tensorflow as tf

from tfhvd.compat.variables import key_of

if TYPE_CHECKING:
    from tfhvd.compat.types import Gradient, Variable

# A gradient of so many bytes is reduced on its own: to copy it together with others costs more than
# an operation does.
ALONE_FROM = 1 << 20

# A bucket takes no more once it has so many bytes: it can travel while others are computed.
FULL_FROM = 1 << 20

# Nothing is left to compute during the bucket that is ready last: so it is this small.
LAST = 128 << 10


class Part(NamedTuple):
    """A gradient, as far as its bucket depends on it.

    Attributes:
        size: in bytes; None if that is unknown.
        kind: only gradients of equal kinds share a bucket.
    """

    size: int | None
    kind: Hashable = None


def grouped(
    dense: list[int],
    gradients: Sequence[Gradient],
    variables: Sequence[Variable],
    groups: int | Sequence[Sequence[Variable]] | None,
) -> list[list[int]]:
    """Divides the positions of dense gradients into what is reduced together.

    Args:
        dense: the positions.
        gradients: these, and others.
        variables: what they belong to.
        groups: how many, or which variables; None for buckets.
    """
    if not groups:
        if tf.executing_eagerly():
            # One call, for it waits for its results. It begins as the first bucket of a graph
            # does, so that ranks of which only some trace a function meet, and are told.
            return [dense[::-1]] if dense else []
        parts = [_part(gradients[i], variables[i]) for i in dense]
        return [[dense[at] for at in bucket] for bucket in divide(parts)]
    if isinstance(groups, int):
        count = min(groups, len(dense))
        cuts = [len(dense) * i // count for i in range(count + 1)] if count else []
        return [dense[begin:end] for begin, end in zip(cuts, cuts[1:])]
    group_of = {key_of(v): number for number, group in enumerate(groups) for v in group}
    together: dict[int | str, list[int]] = {}
    for i in dense:
        together.setdefault(group_of.get(key_of(variables[i]), f"alone/{i}"), []).append(i)
    return list(together.values())


def divide(parts: Sequence[Part]) -> list[list[int]]:
    """Divides gradients into buckets.

    Args:
        parts: in the order of their variables, which must be the same on every rank.

    Returns:
        The positions in each bucket, in the order of the backward pass; a bucket follows those that
        are complete before it.

    Example:
        >>> divide([Part(40, "f"), Part(200_000, "f"), Part(2 << 20, "f"), Part(400, "f")])
        [[2], [3, 1], [0]]
    """
    last = _last(parts)
    buckets: list[list[int]] = []
    filling: dict[Hashable, list[int]] = {}
    filled: dict[Hashable, int] = {}

    def close(kind: Hashable) -> None:
        if kind in filling:
            buckets.append(filling.pop(kind))
            del filled[kind]

    for i in reversed(range(len(parts))):
        size, kind = parts[i]
        if size is None or size >= ALONE_FROM:
            buckets.append([i])
            continue
        if i == last.get(kind):
            close(kind)
        filling.setdefault(kind, []).append(i)
        filled[kind] = filled.get(kind, 0) + size
        if filled[kind] >= FULL_FROM:
            close(kind)
    for kind in list(filling):
        close(kind)
    return buckets


def _part(gradient: tf.Tensor, variable: Variable) -> Part:
    """What a gradient's bucket depends on: what is the same on every rank."""
    elements = tf.TensorShape(variable.shape).num_elements()
    size = None if elements is None else elements * gradient.dtype.size
    return Part(size, (gradient.dtype, gradient.device))


def _last(parts: Sequence[Part]) -> dict[Hashable, int]:
    """By kind, the begin of the bucket that is ready last, in the order of the backward pass."""
    found: dict[Hashable, int] = {}
    sizes: dict[Hashable, int] = {}
    for i, (size, kind) in enumerate(parts):
        if size is None or size >= ALONE_FROM:
            continue
        sizes[kind] = sizes.get(kind, 0) + size
        if sizes[kind] <= LAST:
            found[kind] = i
    return found
