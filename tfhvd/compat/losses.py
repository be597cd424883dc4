"""What Keras divides the losses of a batch by, where it does so.

A part of keras.py, under the same rule: every function here names the versions that need it. What a
loss finds for each sample is reduced in functions that no Keras shows: in one by Keras 3 (3.5 to
3.15), in two by tf_keras (2.16 to 2.21).
"""

from __future__ import annotations

import contextvars
import dataclasses
import importlib
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf

from tfhvd.compat import keras as keras_compat
from tfhvd.compat import private

_USE = "know what losses are divided by"
_MEANS = ("sum_over_batch_size", "mean", "mean_with_sample_weight", "auto")
_mask: contextvars.ContextVar[Any] = contextvars.ContextVar("mask", default=None)


@dataclasses.dataclass(frozen=True)
class Term:
    """One loss of a batch, as it is reduced.

    Attributes:
        values: what the loss has found, of shape [samples, ...]; without dimensions where it has
            reduced by itself.
        divides: whether Keras divides the sum by a number.
        divisor: that number, float64; None if it is how many values there are.
    """

    values: tf.Tensor
    divides: bool
    divisor: tf.Tensor | None


def surround_losses(
    package: str,
    around: Callable[[], AbstractContextManager[Any]],
    factor_of: Callable[[Term], tf.Tensor | None],
) -> None:
    """Makes a Keras compute the loss that a model is compiled with within `around`.

    Each loss that is reduced then is multiplied by what `factor_of` returns, if anything. Calling
    this twice does nothing.

    Args:
        package: "keras" or "tf_keras", imported.
        around: makes a context.
        factor_of: asked for every loss, those outside of models included.
    """
    if package == keras_compat.KERAS_3:
        compiled = private.of_module("keras.src.trainers.compile_utils", "CompileLoss", _USE)
        module, reduce, masks = "keras.src.losses.loss", "reduce_weighted_values", ""
    else:
        compiled = private.of_module("tf_keras.src.engine.compile_utils", "LossesContainer", _USE)
        module, masks = "tf_keras.src.utils.losses_utils", "apply_valid_mask"
        reduce = "compute_weighted_loss"
        private.of_module(module, masks, _USE)
    private.of_module(module, reduce, _USE)
    found = importlib.import_module(module)

    def surrounded(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            with around():
                return original(*args, **kwargs)

        return call

    def multiplied(original: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(original)

        def reduced(*args: Any, **kwargs: Any) -> Any:
            given = signature.bind(*args, **kwargs)
            given.apply_defaults()
            factor = factor_of(_term(found, dict(given.arguments)))
            result = original(*args, **kwargs)
            return result if factor is None else result * tf.cast(factor, result.dtype)

        return reduced

    def noted(original: Callable[..., Any]) -> Callable[..., Any]:
        def apply_valid_mask(losses: Any, sw: Any, mask: Any, reduction: str) -> Any:
            _mask.set(mask)  # for the reduction that follows, which gets the product alone
            return original(losses, sw, mask, reduction)

        return apply_valid_mask

    private.replace_method(compiled, "__call__", surrounded)
    private.replace_method(found, reduce, multiplied)
    if masks:
        private.replace_method(found, masks, noted)


def _term(module: Any, arguments: dict[str, Any]) -> Term:
    """Says what a reduction divides by, from its arguments in either Keras."""
    values = arguments["values"] if "values" in arguments else arguments["losses"]
    mask = arguments["mask"] if "mask" in arguments else _mask.get()
    _mask.set(None)
    reduction = arguments["reduction"]
    if not isinstance(values, tf.RaggedTensor):
        values = tf.convert_to_tensor(values)
    if reduction not in _MEANS:
        return Term(values, divides=False, divisor=None)
    divisor = None
    if reduction == "mean_with_sample_weight":
        weights = module.apply_mask(arguments["sample_weight"], mask, values.dtype, reduction)
        if weights is not None:
            divisor = tf.reduce_sum(tf.cast(weights, tf.float64))
    elif mask is not None:
        valid = tf.reduce_sum(tf.cast(mask, tf.float64))
        of_each = tf.size(values, tf.int64) / tf.size(mask, tf.int64)  # of the mask's elements
        divisor = valid * of_each
    return Term(values, divides=True, divisor=divisor)
