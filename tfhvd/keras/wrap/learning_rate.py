"""get and put: read and set an optimizer's learning rate, with momentum correction."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tensorflow as tf

from tfhvd.compat import keras as keras_compat

if TYPE_CHECKING:
    from tfhvd.compat.types import Optimizer


def get(optimizer: Optimizer) -> float:
    """Returns the learning rate of a Keras optimizer."""
    return float(tf.convert_to_tensor(optimizer.learning_rate))


def put(optimizer: Optimizer, value: float, momentum_correction: bool = False) -> None:
    """Sets the learning rate of a Keras optimizer.

    Args:
        optimizer: an optimizer of Keras 3 or tf_keras, or a loss scale with one inside.
        value: the learning rate.
        momentum_correction: whether to rescale the momentum of SGD and RMSprop. Their momentum is a
            sum of steps, each multiplied by the old learning rate. Without the correction, it would
            continue at the old rate for a while (Goyal et al., 2017, section 3).

    Raises:
        ValueError: if the learning rate is a schedule or a function, which cannot be set.
    """
    old = get(optimizer)
    try:
        optimizer.learning_rate = value
    except (TypeError, AttributeError) as error:
        raise ValueError(
            f"Callbacks cannot set the learning rate of this {type(optimizer).__name__}, which is "
            "a LearningRateSchedule or a function; pass a number as its learning_rate, or leave "
            "out the callback that sets it."
        ) from error
    if momentum_correction and old > 0 and value != old:
        for momentum in keras_compat.momentum_variables(optimizer):
            momentum.assign(momentum * (value / old))
