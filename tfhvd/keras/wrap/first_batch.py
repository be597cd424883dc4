"""build: builds a model that has no variables before its first batch, from the batch's shapes."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import tensorflow as tf

from tfhvd.compat import keras as keras_compat

if TYPE_CHECKING:
    from tfhvd.compat.types import Model

_logger = logging.getLogger("tfhvd")


def build(model: Model, iterator: tf.data.Iterator) -> bool:
    """Creates all variables by tracing a step that never runs; returns whether all exist.

    Args:
        model: of either Keras.
        iterator: the iterator over batches that its train function receives.
    """
    if keras_compat.all_built(model):
        return True
    try:
        spec = tf.nest.map_structure(
            lambda s: None if isinstance(s, tf.OptionalSpec) else s, iterator.element_spec
        )
        tf.function(lambda data: model.train_step(data)).get_concrete_function(spec)
    except Exception as error:  # A user's train_step may raise any error when it is traced.
        _logger.warning(
            "tfhvd could not build the model before its first batch (%s: %s). Its variables "
            "are broadcast after the first update instead. To have them broadcast before it, "
            "call model.build(shape) before fit.",
            type(error).__name__,
            error,
        )
        return False
    return True
