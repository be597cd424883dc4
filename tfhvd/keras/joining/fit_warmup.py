"""The step of `fit` that a rank makes by itself before it is let in to an elastic job."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfhvd.compat import keras as keras_compat
from tfhvd.compat.training import optimizers_of
from tfhvd.compat.variables import key_of, tf_variable
from tfhvd.gradients import reset
from tfhvd.keras.callbacks.base import Callback
from tfhvd.keras.callbacks.broadcast_global_variables import BroadcastGlobalVariablesCallback
from tfhvd.keras.callbacks.lists import ours
from tfhvd.keras.wrap.model_state import local_keys, process_set_of, step_of
from tfhvd.ops import sync_monitor
from tfhvd.runtime.elastic.replay import comers
from tfhvd.runtime.elastic.warmup import rehearsal, warn_of_failure
from tfhvd.runtime.membership import membership

if TYPE_CHECKING:
    import tensorflow as tf

    from tfhvd.compat.types import Logs, Model

_NEVER = 1 << 30  # epochs
_under_way = False  # the `fit` below


@dataclass(frozen=True)
class Coming:
    """How a rank that comes to a `fit` which the others are in differs from them.

    Attributes:
        has_come: whether it is such a rank.
        traces_otherwise: whether the step would be traced here with other names than elsewhere.
        knows_no_step: whether it cannot know yet that the step reduces gradients, by a tape.
    """

    has_come: bool = False
    traces_otherwise: bool = False
    knows_no_step: bool = False


def rehearse(model: Model, arguments: dict[str, Any]) -> Coming:
    """Makes one step, of which nothing is left, if this rank is not let in yet; then it waits.

    The data are those of `fit`, which reads them anew; data that can be read only once are left
    alone, and so are the user's callbacks. What `fit` trains begins with rank 0's weights anyway.
    It does not wait where neither an optimizer nor a tape of that step reduces the gradients; of a
    step that could not be made a callback that meets all ranks says that one does. It stays outside
    as well where the others end that `fit` meanwhile.

    Args:
        model: of either Keras.
        arguments: of its `fit`, by their names, with the model as "self".

    Returns:
        How it comes. If that step failed, the model has its variables, which others did not have
        when they traced theirs.
    """
    if not membership.is_outside or _under_way:
        return Coming()
    failed = False
    if not isinstance(arguments.get("x"), Iterator):
        with membership.rehearsal() as begun:
            if begun:
                failed = not _step(model, arguments)
    rehearsal.end_of_function()
    callbacks = ours(arguments.get("callbacks"))
    is_reduced = process_set_of(model) is not None
    meets = step_of(model) is None and any(callback.meets_all_ranks for callback in callbacks)
    if is_reduced or meets:
        comers.expect(shared_variables(model))
        comers.enter()
    return Coming(has_come=True, traces_otherwise=failed, knows_no_step=not is_reduced)


def build(model: Model, arguments: dict[str, Any]) -> None:
    """Makes what a `fit` would have made of a model that is not built, by such a step.

    Args:
        model: of either Keras.
        arguments: of its `fit`, by their names, with the model as "self".
    """
    if keras_compat.all_built(model) or isinstance(arguments.get("x"), Iterator):
        return
    with membership.rehearsal() as begun:
        if begun:
            _step(model, arguments)


def shared_variables(model: Model) -> Iterator[tf.Variable]:
    """Yields what a model and its optimizers have by now, but for what stays each rank's own."""
    built = keras_compat.all_built(model)
    local = local_keys(model, step_of(model) or sync_monitor.Step()) if built else set()
    for variable in map(tf_variable, _variables(model)):
        if key_of(variable) not in local:
            yield variable


def _step(model: Model, arguments: dict[str, Any]) -> bool:
    global _under_way
    first = arguments.get("initial_epoch") or 0
    # This callback makes variables before a step is traced; on what is there by then, names depend.
    broadcasts = [
        BroadcastGlobalVariablesCallback(0, callback.device)
        for callback in ours(arguments.get("callbacks"))
        if isinstance(callback, BroadcastGlobalVariablesCallback)
    ]
    changed = arguments | {
        "verbose": 0,
        "validation_freq": first + _NEVER,
        "epochs": first + 1,
        "steps_per_epoch": keras_compat.steps_of_a_call(model),
    }
    _under_way = True
    try:
        with reset.nothing_left(), _kept(model) as values:
            changed["callbacks"] = [_BeforeTheStep(values), *broadcasts]
            keras_compat.keras_of(model).Model.fit(**changed)
        return True
    except Exception:
        model.train_function = None  # what failed to be compiled would fail again
        warn_of_failure("a step of fit")
        return False
    finally:
        _under_way = False


@contextlib.contextmanager
def _kept(model: Model) -> Iterator[_Values]:
    """Gives a model's variables their values back."""
    values = _Values(model)
    try:
        yield values
    finally:
        values.restore()


def _variables(model: Model) -> list[Any]:
    """Lists what a model and its optimizers have by now, metrics and random seeds too."""
    variables = keras_compat.variables_by_now(model)
    for optimizer in optimizers_of(model):
        variables += keras_compat.optimizer_variables(optimizer)
    return variables


class _Values:
    """The values that a model's variables have before the step."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._values: dict[int, tuple[tf.Variable, Any]] = {}
        self.add()

    def add(self) -> None:
        """Takes those of variables that are new."""
        for variable in map(tf_variable, _variables(self._model)):
            if key_of(variable) not in self._values:
                self._values[key_of(variable)] = variable, variable.numpy()

    def restore(self) -> None:
        """Gives the values back."""
        for variable, value in self._values.values():
            variable.assign(value)


class _BeforeTheStep(Callback):
    """Takes the values of variables that are made as late as before the first step.

    Args:
        values: to add them to.
    """

    def __init__(self, values: _Values) -> None:
        super().__init__()
        self._values = values

    def on_train_begin(self, logs: Logs = None) -> None:
        """Puts itself before the step, where the model is built."""
        model, step = self.model, self.model.train_function

        def take_then_step(iterator: Iterator[Any]) -> Any:
            model.train_function = step
            self._values.add()
            return step(iterator)

        model.train_function = take_then_step
