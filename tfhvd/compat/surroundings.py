"""Checks for surroundings in which tfhvd cannot work; each raises an error with one line."""

from __future__ import annotations

import sys

import tensorflow as tf

from tfhvd.compat import keras as keras_compat
from tfhvd.errors import TfhvdError


def require_tensorflow(thing: object, ranks: int) -> None:
    """Makes sure that a Keras object computes with TensorFlow, if there are other ranks.

    Args:
        thing: a model or an optimizer.
        ranks: the number of ranks.

    Raises:
        TfhvdError: if the object is of Keras 3 with another backend.
    """
    if ranks == 1 or keras_compat.keras_package(thing) != keras_compat.KERAS_3:
        return
    backend = sys.modules[keras_compat.KERAS_3].backend.backend()
    if backend != "tensorflow":
        raise TfhvdError(
            f"tfhvd reduces tensors of TensorFlow. Received: Keras with KERAS_BACKEND={backend} on "
            f"{ranks} ranks. Expected: KERAS_BACKEND=tensorflow, before Keras is imported."
        )


def require_no_strategy() -> None:
    """Makes sure that tf.distribute is not in use, which would reduce gradients a second time.

    Raises:
        TfhvdError: within the scope of a strategy, or in a function that a strategy runs.
    """
    if not tf.distribute.has_strategy():
        return
    strategy = type(tf.distribute.get_strategy()).__name__
    raise TfhvdError(
        f"A distributed optimizer or tape cannot be used under a {strategy}: tfhvd's ranks take "
        "the role of the replicas of tf.distribute. Leave out the strategy, and start one rank "
        "for each device."
    )
