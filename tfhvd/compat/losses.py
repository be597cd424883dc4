"""The divisor of a batch's losses, if Keras divides them.

A part of keras.py, under the same rule: every function here names the versions that need it. The
losses of the samples are reduced in private functions: in one of Keras 3 (3.5 to 3.15), in two of
tf_keras (2.16 to 2.21).
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
    """The reduction of one loss of a batch.

    Attributes:
        values: the losses of the samples, of shape [samples, ...]; a scalar if the loss has reduced
            them already.
        divides: whether Keras divides the sum by a number.
        divisor: this number, float64; None if it is the number of values.
    """

    values: tf.Tensor
    divides: bool
    divisor: tf.Tensor | None


def surround_losses(
    package: str,
    around: Callable[[], AbstractContextManager[Any]],
    factor_of: Callable[[Term], tf.Tensor | None],
) -> None:
    """Makes a Keras compute the loss of `compile` within `around`, with a factor for each term.

    Each reduced loss is multiplied by the factor that `factor_of` returns, unless None. A second
    call does nothing.

    Args:
        package: "keras" or "tf_keras", imported.
        around: makes a context.
        factor_of: called for every loss, also for losses outside of models.
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
            _mask.set(mask)  # for the reduction that follows, which gets only the product
            return original(losses, sw, mask, reduction)

        return apply_valid_mask

    private.replace_method(compiled, "__call__", surrounded)
    private.replace_method(found, reduce, multiplied)
    if masks:
        private.replace_method(found, masks, noted)


def _term(module: Any, arguments: dict[str, Any]) -> Term:
    """Returns the term of a reduction, from the reduction's arguments in either Keras."""
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
        of_each = tf.size(values, tf.int64) / tf.size(mask, tf.int64)  # values per mask element
        divisor = valid * of_each
    return Term(values, divides=True, divisor=divisor)
