"""Whether Keras may compile a training step with XLA."""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING

from tfhvd.compat import keras as keras_compat
from tfhvd.job import process
from tfhvd.keras.wrap.model_state import reducing_optimizers
from tfhvd.runtime.gpu_selection import has_other_gpus
from tfhvd.runtime.native import chosen_ops

if TYPE_CHECKING:
    from tfhvd.compat.types import Model

_logger = logging.getLogger("tfhvd")


def avoid(package: str) -> None:
    """Makes Keras train uncompiled if the step has collectives that XLA lacks for the device.

    Args:
        package: "keras" or "tf_keras", imported.
    """
    keras_compat.never_compile_training(package, _must_not_be_compiled, _say_once)


def _must_not_be_compiled(model: Model) -> bool:
    if chosen_ops().xla and not has_other_gpus():
        return False
    if reducing_optimizers(model):
        return True
    # A user's train_step may have tapes, which only tracing finds, and this is too late.
    return process.is_one_of_several() and keras_compat.has_own_train_step(model)


@functools.cache
def _say_once(text: str) -> None:
    if not process.is_initialized() or process.rank() == 0:
        _logger.warning(text)
