"""Which gradients of a step a rank checks before they are reduced, and what follows from it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import tensorflow as tf

from tfhvd.compat.variables import variable_name
from tfhvd.gradients import loss_scale
from tfhvd.gradients.gradient import values_of
from tfhvd.ops.finite_check import FiniteCheck, can_be_checked
from tfhvd.runtime.native import load_native

if TYPE_CHECKING:
    from tfhvd.compat.types import Gradient, Variable

# If nothing depends on the check of gradients, it reads so many values of each: a NaN that comes
# from the loss, or from a layer above, is in all of them. It costs almost nothing.
_SAMPLE = 4096


def look(
    groups: Sequence[Sequence[int]],
    gradients: Sequence[Gradient],
    variables: Sequence[Variable],
    names: Sequence[str],
    needed: bool,
) -> FiniteCheck | None:
    """Checks gradients, bucket by bucket; returns None if the result is not needed.

    Args:
        groups: the positions of the dense ones that are reduced together, by bucket.
        gradients: all.
        variables: what they belong to.
        names: of their reductions.
        needed: whether something depends on every value of them.
    """
    if not (needed or is_said()):
        return None
    grouped = {*itertools.chain(*groups)}
    others = [[i] for i, g in enumerate(gradients) if g is not None and i not in grouped]
    looked_at: list[tuple[list[int], list[tf.Tensor]]] = []
    for bucket in [*groups, *others]:
        values = {i: values_of(gradients[i]) for i in bucket}
        able = [i for i, value in values.items() if can_be_checked(value)]
        if able:
            looked_at.append((able, [values[i] for i in able]))
    if not looked_at:
        return None
    most = 0 if needed or _on_not_finite() == "RAISE" else _SAMPLE
    if not is_said() or _on_outlier() == "OFF":
        return FiniteCheck(looked_at, most)
    # Tapes share a name: what they reduce tells them apart.
    sizes = f"{names[0]} of {len(names)}"
    return FiniteCheck(looked_at, most, sizes, _layers(variables))


def is_said() -> bool:
    """Whether users are told of what is not finite, or out of proportion."""
    return _on_not_finite() != "OFF" and not loss_scale.looks()


def may_raise() -> bool:
    """Whether the job may end with what is found."""
    return "RAISE" in (_on_not_finite(), _on_outlier())


def leaves_out_outliers() -> bool:
    """Whether no update is made with a gradient that is out of proportion."""
    return is_said() and _on_outlier() == "SKIP"


def _layers(variables: Sequence[Variable]) -> list[int]:
    """Numbers the layers of variables: "block/dense/kernel" belongs to "block/dense"."""
    numbers: dict[str, int] = {}
    layers: list[int] = []
    for position, variable in enumerate(variables):
        layer, slash, _ = (variable_name(variable) or "").rpartition("/")
        whose = layer if slash else f"/{position}"  # A variable of no layer is one by itself.
        layers.append(numbers.setdefault(whose, len(numbers)))
    return layers


def _on_not_finite() -> str:
    return load_native().config().on_not_finite.name


def _on_outlier() -> str:
    return load_native().config().on_outlier.name
