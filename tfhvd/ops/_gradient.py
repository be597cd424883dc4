"""What the gradients of all collectives share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import tensorflow as tf

Function = TypeVar("Function", bound=Callable[..., "tf.Tensor | Sequence[tf.Tensor | None]"])


def gradient_of(kind: str) -> Callable[[Function], Function]:
    """Registers what gives the gradients of an operation's inputs; further ones have none.

    Args:
        kind: the operation's type. Eagerly its name is one more input.
    """

    def register(function: Function) -> Function:
        @tf.RegisterGradient(kind)
        def gradients_of_all(
            forward: tf.Operation, *gradients: tf.Tensor | None
        ) -> list[tf.Tensor | None]:
            given = function(forward, *gradients)
            found = [given] if tf.is_tensor(given) else list(given)
            return found + [None] * (len(forward.inputs) - len(found))

        return function

    return register


def filled(gradients: Sequence[tf.Tensor | None], outputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Returns the gradients of outputs, zeros for those that nothing depends on."""
    return [
        tf.zeros_like(y) if g is None else tf.convert_to_tensor(g)
        for g, y in zip(gradients, outputs)
    ]


def factors_of(forward: tf.Operation) -> tuple[float, float]:
    """Returns what a reduction multiplies by, before and after."""
    before, after = (forward.get_attr(f"{when}scale_factor") for when in ("pre", "post"))
    return float(before), float(after)
