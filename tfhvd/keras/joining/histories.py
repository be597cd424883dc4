"""Histories of `fit`: an elastic job gives a joining rank the history of the earlier epochs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from tfhvd.compat import keras as keras_compat
from tfhvd.job import process
from tfhvd.ops import allgather_object
from tfhvd.runtime.membership import membership

if TYPE_CHECKING:
    from tfhvd.compat.types import Model

_NO_HISTORY = b"[[], {}]"


def as_bytes(value: Any) -> bytes | None:
    """Returns a result of Keras as bytes; None if it has more than numbers in lists and dicts."""
    try:
        return json.dumps(value, default=lambda array: np.asarray(array).tolist()).encode()
    except (TypeError, ValueError):
        return None


def history_of(model: Model) -> bytes | None:
    """Returns the history of a model's latest `fit` as bytes; None if `as_bytes` cannot."""
    history = getattr(model, "history", None)
    # It has no epochs before its `fit` begins.
    return None if history is None else as_bytes([getattr(history, "epoch", []), history.history])


def set_history(model: Model, written: bytes) -> None:
    """Gives a model the history of a `fit` that this rank skips.

    Args:
        model: of either Keras.
        written: the result of `history_of` on another rank.
    """
    model.history = keras_compat.keras_of(model).callbacks.History()
    model.history.set_model(model)
    _complete(model, written)


class Past:
    """Sends the history of the earlier epochs of a `fit` to ranks that have joined.

    Args:
        model: of either Keras.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self._is_due = False

    def begin(self) -> None:
        """Records that ranks may have joined; all ranks call it."""
        self._is_due = True

    def tell(self) -> None:
        """Sends the history, if ranks may have joined; all ranks call it.

        Call it when an epoch begins: Keras has then recorded the epoch before. During a warm-up
        there is no other rank to send it.
        """
        found = b""
        while self._is_due and not (found or membership.rehearses):
            membership.refresh()  # rank 0 may have failed meanwhile
            own = (history_of(self._model) or _NO_HISTORY) if process.rank() == 0 else b""
            found = b"".join(allgather_object(own, name="fit/history")[:1])
        self._is_due = False
        if found:
            _complete(self._model, found)


def _complete(model: Model, written: bytes) -> None:
    epochs, history = json.loads(written)
    if not getattr(model.history, "epoch", None):
        model.history.epoch = epochs
        model.history.history.update(history)
