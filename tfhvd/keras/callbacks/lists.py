"""The callbacks that `fit` is given: none, one, a list, or Keras' container of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tfhvd.compat import keras as keras_compat
from tfhvd.keras.callbacks.base import Callback
from tfhvd.keras.callbacks.best_model_checkpoint import BestModelCheckpoint
from tfhvd.runtime import process

if TYPE_CHECKING:
    from tfhvd.compat.types import Callbacks


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


def saves(callbacks: Callbacks) -> bool:
    """Whether one of them saves on this rank, as far as Keras' own and tfhvd's are concerned."""
    return any(map(_saves, _list_of(callbacks)))


def _saves(callback: object) -> bool:
    if isinstance(callback, BestModelCheckpoint):
        return process.rank() == 0
    return keras_compat.is_checkpoint(callback)
