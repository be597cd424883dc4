"""The warm-up of `fit`: a joining rank makes one step alone before the others admit it."""

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
_under_way = False  # the `fit` of the warm-up is running


@dataclass(frozen=True)
class Coming:
    """How this rank joins a `fit`, in which the others may be already.

    Attributes:
        has_come: whether this rank joins a `fit` of a running job.
        traces_otherwise: whether this rank may trace the step with other names than the others.
        knows_no_step: whether this rank cannot know yet that the step reduces gradients by a tape.
    """

    has_come: bool = False
    traces_otherwise: bool = False
    knows_no_step: bool = False


def rehearse(model: Model, arguments: dict[str, Any]) -> Coming:
    """Warms up a joining rank by one step without lasting effects; then waits for the admission.

    The step uses the data of `fit`, which reads them again later. It is left out if the data can be
    read only once, and it does not call the user's callbacks. The training begins with rank 0's
    weights in any case.

    The rank does not wait if neither an optimizer nor a tape of the step reduces gradients. If the
    step has failed, or was left out, a callback that meets all ranks also shows that gradients are
    reduced. The rank stays outside if the others finish this `fit` meanwhile.

    Args:
        model: of either Keras.
        arguments: of its `fit`, by their names, with the model as "self".

    Returns:
        How this rank joins. If the step failed, the model here has its variables already when its
        step is traced, unlike the models of the others.
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
    """Builds a model as its skipped `fit` would have built it, by a step of the warm-up.

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
    """Yields the present variables of a model and its optimizers, except local variables."""
    built = keras_compat.all_built(model)
    local = local_keys(model, step_of(model) or sync_monitor.Step()) if built else set()
    for variable in map(tf_variable, _variables(model)):
        if key_of(variable) not in local:
            yield variable


def _step(model: Model, arguments: dict[str, Any]) -> bool:
    global _under_way
    first = arguments.get("initial_epoch") or 0
    # This callback builds the model before a step is traced, and names of collectives depend on it.
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
        model.train_function = None  # if it failed to compile, it would fail again
        warn_of_failure("a step of fit")
        return False
    finally:
        _under_way = False


@contextlib.contextmanager
def _kept(model: Model) -> Iterator[_Values]:
    """Restores the values of a model's variables at the end of the block."""
    values = _Values(model)
    try:
        yield values
    finally:
        values.restore()


def _variables(model: Model) -> list[Any]:
    """Lists the present variables of a model and its optimizers, also of metrics and seeds."""
    variables = keras_compat.variables_by_now(model)
    for optimizer in optimizers_of(model):
        variables += keras_compat.optimizer_variables(optimizer)
    return variables


class _Values:
    """The values of a model's variables before the step."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._values: dict[int, tuple[tf.Variable, Any]] = {}
        self.add()

    def add(self) -> None:
        """Saves the values of variables that are new."""
        for variable in map(tf_variable, _variables(self._model)):
            if key_of(variable) not in self._values:
                self._values[key_of(variable)] = variable, variable.numpy()

    def restore(self) -> None:
        """Restores the values."""
        for variable, value in self._values.values():
            variable.assign(value)


class _BeforeTheStep(Callback):
    """Saves the values of the variables that are made just before the first step.

    Args:
        values: the saved values.
    """

    def __init__(self, values: _Values) -> None:
        super().__init__()
        self._values = values

    def on_train_begin(self, logs: Logs = None) -> None:
        """Saves the values immediately before the first step, when the model is built."""
        model, step = self.model, self.model.train_function

        def take_then_step(iterator: Iterator[Any]) -> Any:
            model.train_function = step
            self._values.add()
            return step(iterator)

        model.train_function = take_then_step
