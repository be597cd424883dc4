"""The factor of a scaled loss, for compressions that keep parts of gradients from step to step.

The loss scales of Keras (3.5 to 3.15, tf_keras 2.16 to 2.21) change their factor during the
training, and a tape gets only the product. So tfhvd notes the factor on the product.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tfhvd.compat import private
from tfhvd.compat.keras import KERAS_3, TF_KERAS

if TYPE_CHECKING:
    from tfhvd.compat.types import Optimizer

_FACTOR = "_tfhvd_loss_scale"  # the attribute of a scaled loss with its factor
_USE = "keep what a compression leaves out in the units of the loss"


def note_factors() -> None:
    """Makes the loss scales of every imported Keras note their factors.

    A second call does nothing.
    """
    if hasattr(sys.modules.get(KERAS_3), "optimizers"):
        keras_3 = sys.modules[KERAS_3].optimizers.LossScaleOptimizer
        private.replace_method(private.owner_of(keras_3, "scale_loss", _USE), "scale_loss", _noting)
    if hasattr(sys.modules.get(TF_KERAS), "mixed_precision"):
        module = "tf_keras.src.mixed_precision.loss_scale_optimizer"
        for name in ("LossScaleOptimizer", "LossScaleOptimizerV3"):
            owner = private.of_module(module, name, _USE)
            private.replace_method(owner, "get_scaled_loss", _noting)


def factor_of(target: object) -> tf.Tensor | None:
    """Returns the factor of a scaled loss; None if unknown."""
    return getattr(target, _FACTOR, None)


def _noting(original: Callable[..., Any]) -> Callable[..., Any]:
    def scale(self: Optimizer, loss: Any) -> Any:
        scaled = original(self, loss)
        if isinstance(scaled, tf.Tensor):
            setattr(scaled, _FACTOR, original(self, tf.constant(1.0)))
        return scaled

    return scale
