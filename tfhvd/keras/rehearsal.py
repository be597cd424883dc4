"""The step of `fit` that a rank makes by itself before it is let in to an elastic job."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tfhvd.compat import keras as keras_compat
from tfhvd.compat.variables import tf_variable
from tfhvd.compression import has_state
from tfhvd.gradients.indexed_slices import forget_ways
from tfhvd.keras.callbacks.broadcast_global_variables import BroadcastGlobalVariablesCallback
from tfhvd.keras.callbacks.lists import ours
from tfhvd.keras.model_state import optimizers_of, reducing_optimizers
from tfhvd.keras.optimizer_hooks import accumulator_of, reducer_of
from tfhvd.runtime.membership import membership
from tfhvd.runtime.rehearsal import rehearsal, warn_of_failure

if TYPE_CHECKING:
    import tensorflow as tf

    from tfhvd.compat.types import Model

_NEVER = 1 << 30  # epochs
_under_way = False  # the `fit` below


def rehearse(model: Model, arguments: dict[str, Any]) -> None:
    """Makes one step, of which nothing is left, if this rank waits to be let in; then it waits.

    The data are those of `fit`, which reads them anew; data that can be read only once are left
    alone, and so are the user's callbacks. What `fit` trains begins with rank 0's weights anyway.

    Args:
        model: of either Keras.
        arguments: of its `fit`, by their names, with the model as "self".
    """
    if not membership.is_outside or _under_way:
        return
    if not isinstance(arguments.get("x"), Iterator):
        with membership.rehearsal() as begun:
            if begun:
                _step(model, arguments)
    rehearsal.end_of_function()
    membership.take_part()


def _step(model: Model, arguments: dict[str, Any]) -> None:
    global _under_way
    first = arguments.get("initial_epoch") or 0
    # This callback makes variables before a step is traced; on what is there by then, names depend.
    broadcasts = [
        BroadcastGlobalVariablesCallback(0, callback.device)
        for callback in ours(arguments.get("callbacks"))
        if isinstance(callback, BroadcastGlobalVariablesCallback)
    ]
    changed = arguments | {
        "callbacks": broadcasts,
        "verbose": 0,
        "validation_freq": first + _NEVER,
        "epochs": first + 1,
        "steps_per_epoch": keras_compat.steps_of_a_call(model),
    }
    _under_way = True
    try:
        with _kept(model):
            keras_compat.keras_of(model).Model.fit(**changed)
    except Exception:
        model.train_function = None  # what failed to be compiled would fail again
        warn_of_failure("a step of fit")
    finally:
        _under_way = False


@contextlib.contextmanager
def _kept(model: Model) -> Iterator[None]:
    """Gives variables the values again that they have now, metrics and random seeds among them."""
    values = [(variable, variable.numpy()) for variable in _variables(model)]
    try:
        yield
    finally:
        for variable, value in values:
            variable.assign(value)
        for optimizer in reducing_optimizers(model):
            accumulator_of(optimizer).begin_anew()
        forget_ways(model.trainable_variables)


def _variables(model: Model) -> list[tf.Variable]:
    variables = list(model.variables)
    for optimizer in optimizers_of(model):
        variables += keras_compat.optimizer_variables(optimizer)
    for optimizer in reducing_optimizers(model):
        compression = reducer_of(optimizer).options.compression
        if has_state(compression):
            variables += compression.state()
    return [tf_variable(variable) for variable in variables]
