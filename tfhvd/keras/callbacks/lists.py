"""The callbacks that `fit` is given: none, one, a list, or Keras' container of them."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tfhvd.compat import keras as keras_compat
from tfhvd.keras.callbacks.base import Callback
from tfhvd.keras.callbacks.first_rank import FirstRankCallback
from tfhvd.keras.callbacks.metric_average import MetricAverageCallback
from tfhvd.keras.model_state import is_on_first_rank
from tfhvd.runtime.process_sets import global_process_set

if TYPE_CHECKING:
    from tfhvd.compat.types import Callbacks, Model

_logger = logging.getLogger("tfhvd")


@contextlib.contextmanager
def inserted(first: Callback, callbacks: Callbacks, last: Callback) -> Iterator[Callbacks]:
    """Puts one callback before, and one behind, those that `fit` is given; gives all of them."""
    given = _list_of(callbacks)
    if not keras_compat.is_callback_list(callbacks):
        yield [first, *given, last]
        return
    callbacks.callbacks = [first, *given, last]
    for own in (first, last):
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


def ours(callbacks: Callbacks) -> list[Callback]:
    """Lists the callbacks of tfhvd among those that `fit` is given."""
    return [callback for callback in _list_of(callbacks) if isinstance(callback, Callback)]


def saves(callbacks: Callbacks, model: Model) -> bool:
    """Whether one of them saves on this rank, as far as Keras' own and tfhvd's are concerned."""
    is_first = is_on_first_rank(model)
    return any(
        keras_compat.is_checkpoint(callback)
        and (is_first or not isinstance(callback, FirstRankCallback))
        for callback in _list_of(callbacks)
    )


def warn_of_order(callbacks: Callbacks) -> None:
    """Warns, on rank 0, of callbacks that write or monitor metrics before these are averaged."""
    given = _list_of(callbacks)
    averages = [n for n, c in enumerate(given) if isinstance(c, MetricAverageCallback)]
    early = [
        type(callback).__name__
        for callback in given[: max(averages, default=0)]
        if isinstance(callback, FirstRankCallback)
    ]
    if early and global_process_set.rank() == 0:
        _logger.warning(
            "Callbacks before MetricAverageCallback see only the metrics of their own rank; place "
            "MetricAverageCallback before %s.",
            ", ".join(early),
        )
