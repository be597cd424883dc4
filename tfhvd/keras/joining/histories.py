"""What `fit` has noted of its epochs, as ranks of an elastic job tell it those that come later."""

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
    """Writes what Keras returns; None if it is more than numbers in lists and dicts."""
    try:
        return json.dumps(value, default=lambda array: np.asarray(array).tolist()).encode()
    except (TypeError, ValueError):
        return None


def history_of(model: Model) -> bytes | None:
    """Writes the history of the latest `fit` of a model of either Keras; None likewise."""
    history = getattr(model, "history", None)
    # It has no epochs before its `fit` begins.
    return None if history is None else as_bytes([getattr(history, "epoch", []), history.history])


def set_history(model: Model, written: bytes) -> None:
    """Gives a model the history of a `fit` that it does not do.

    Args:
        model: of either Keras.
        written: by `history_of`.
    """
    model.history = keras_compat.keras_of(model).callbacks.History()
    model.history.set_model(model)
    _complete(model, written)


class Past:
    """What a rank that comes is told of the epochs of a `fit` that were before.

    Args:
        model: of either Keras.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self._is_due = False

    def begin(self) -> None:
        """Takes note that ranks may have come; all ranks call it."""
        self._is_due = True

    def tell(self) -> None:
        """Tells it, as an epoch begins: by then Keras has noted the one before; all ranks call it.

        A rank that rehearses has nobody who would.
        """
        found = b""
        while self._is_due and not (found or membership.rehearses):
            membership.refresh()  # rank 0 may be lost meanwhile
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
