"""The `callbacks` argument of `fit`: None, one callback, a list, or Keras' container."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tfhvd.compat import keras as keras_compat
from tfhvd.keras.callbacks.base import Callback
from tfhvd.keras.callbacks.first_rank import FirstRankCallback
from tfhvd.keras.callbacks.metric_average import MetricAverageCallback
from tfhvd.keras.wrap.model_state import is_on_first_rank
from tfhvd.runtime.process_sets import global_process_set

if TYPE_CHECKING:
    from tfhvd.compat.types import Callbacks, Model

_logger = logging.getLogger("tfhvd")


@contextlib.contextmanager
def inserted(
    before: Sequence[Callback], callbacks: Callbacks, behind: Sequence[Callback] = ()
) -> Iterator[Callbacks]:
    """Yields the callbacks of `fit` with others before and behind them."""
    given = _list_of(callbacks)
    ordered = [*before, *sorted(_in_order(given), key=_comes_last), *behind]
    if not keras_compat.is_callback_list(callbacks):
        yield ordered
        return
    callbacks.callbacks = ordered
    for own in (*before, *behind):
        own.set_params(callbacks.params)
        own.set_model(callbacks.model)
    try:
        yield callbacks
    finally:
        callbacks.callbacks = given


def _list_of(callbacks: Callbacks) -> list[Any]:
    if keras_compat.is_callback_list(callbacks):
        return callbacks.callbacks
    return [] if callbacks is None else tf.nest.flatten(callbacks)


def _comes_last(callback: object) -> bool:
    return isinstance(callback, Callback) and callback.comes_last


def ours(callbacks: Callbacks) -> list[Callback]:
    """Lists tfhvd's callbacks among the callbacks of `fit`."""
    return [callback for callback in _list_of(callbacks) if isinstance(callback, Callback)]


def saves(callbacks: Callbacks, model: Model) -> bool:
    """Whether one of Keras' or tfhvd's own callbacks saves on this rank."""
    is_first = is_on_first_rank(model)
    return any(
        keras_compat.is_checkpoint(callback)
        and (is_first or not isinstance(callback, FirstRankCallback))
        for callback in _list_of(callbacks)
    )


def _in_order(given: Sequence[Any]) -> list[Any]:
    """Moves callbacks that read metrics behind MetricAverageCallback, which joins them; warns."""
    joins = [n for n, c in enumerate(given) if isinstance(c, MetricAverageCallback)]
    before, behind = given[: max(joins, default=-1) + 1], given[max(joins, default=-1) + 1 :]
    early = [callback for callback in before if keras_compat.reads_metrics(callback)]
    if early and global_process_set.rank() == 0:
        _logger.warning(
            "fit moves %s behind MetricAverageCallback: in front of it, a callback sees the "
            "metrics of one rank only. Place MetricAverageCallback first.",
            ", ".join(type(callback).__name__ for callback in early),
        )
    return [*(callback for callback in before if callback not in early), *early, *behind]
