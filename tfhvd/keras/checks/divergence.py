"""`fit` compares the ranks' weights every so many steps, and a part of their other equal state."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from tfhvd.compat import adapted, training
from tfhvd.compat import keras as keras_compat
from tfhvd.compat.variables import key_of
from tfhvd.keras.callbacks.divergence import DivergenceCallback
from tfhvd.keras.wrap.model_state import local_keys
from tfhvd.replicas import ACTIONS, Comparison
from tfhvd.runtime.native import load_native
from tfhvd.runtime.process_sets import ProcessSet, global_process_set

if TYPE_CHECKING:
    from tfhvd.compat.types import Layer, Model, Variable
    from tfhvd.keras.callbacks.base import Callback
    from tfhvd.ops.sync_monitor import Step

_PARTS = 8  # number of comparisons that cover all state except weights


class DivergenceCheck:
    """The comparisons of one `fit`. All ranks that still have batches make its calls together.

    A comparison begins after a step. The ranks read its result after the next step, or after the
    epoch, and all at the same step, because they heal together.

    Args:
        model: of either Keras.
        callbacks: tfhvd's callbacks of the `fit`.
    """

    def __init__(self, model: Model, callbacks: Sequence[Callback]) -> None:
        config = load_native().config()
        self._every: int = config.divergence_steps
        self._action: str = config.on_divergence.name.lower()
        for callback in callbacks:
            if isinstance(callback, DivergenceCallback):
                self._every, self._action = callback.every, callback.on_divergence
        self._model = model
        self._pending: Comparison | None = None
        self._of_start = False
        self._begun = False
        self._before = 0  # steps of the earlier epochs
        self._known: set[int] = set()  # keys of variables that are known to differ

    def wanted(self) -> list[int]:
        """Returns the steps between comparisons and the action, as this rank has them."""
        return [self._every, ACTIONS.index(self._action)]

    def take(self, wanted: Sequence[int]) -> None:
        """Takes the steps and the action of the first rank, from its `wanted`."""
        self._every, self._action = int(wanted[0]), ACTIONS[int(wanted[1])]

    def before_step(self, step: Step, ranks: ProcessSet, alike: bool) -> None:
        """Compares the state at the beginning of the training.

        Args:
            step: the record of what the model's steps do.
            ranks: the ranks that train together.
            alike: whether the ranks begin with equal states: no rank waits for the state of another
                rank, and none has made a step of this epoch. The latter can be false for a model
                that shows only in its first step that it reduces gradients.
        """
        if self._every and not self._begun and not self._before and alike:
            # A layer that is still not built after a step is never called.
            complete = keras_compat.all_built(self._model)
            self._begin("before the first step of fit", step, ranks, complete=complete)
            self._of_start = True
        self._begun = True

    def after_step(self, steps: int, of_call: int, step: Step, ranks: ProcessSet) -> None:
        """Reads the result of the last comparison, and begins one every so many steps.

        Args:
            steps: the number of steps in this epoch.
            of_call: the number of steps in the last call of the train function.
            step: the record of what the model's steps do.
            ranks: the ranks that train together.
        """
        self._finish(step, together=True)
        done = self._before + steps
        if self._every and done // self._every > (done - of_call) // self._every:
            self._begin(f"after step {done} of fit", step, ranks, done // self._every)

    def settle(self) -> None:
        """Waits for the collective of the comparison: after its join a rank may submit none."""
        if self._pending is not None:
            self._pending.wait()

    def after_epoch(self, steps: int, alike: bool, step: Step) -> None:
        """Reads the result of a comparison from the epoch's last step.

        Args:
            steps: the largest number of steps that a rank has made in this epoch.
            alike: whether all ranks have made this number of steps.
            step: the record of what the model's steps do.
        """
        self._finish(step, together=alike)
        self._before += steps

    def leave(self) -> None:
        """Abandons a comparison in progress, after an error."""
        if self._pending is not None:
            self._pending.leave()
            self._pending = None

    def _begin(
        self,
        when: str,
        step: Step,
        ranks: ProcessSet,
        number: int | None = None,
        complete: bool = True,
    ) -> None:
        """Begins the comparison of the weights and of one part of the other state.

        The part depends on `number`. None compares the weights only, because before the first step
        the optimizers of some ranks may have no variables.
        """
        variables: list[Variable] = []
        if self._model.built:
            local = local_keys(self._model, step)
            variables = [v for v in self._model.trainable_variables if _is_shared(v, local)]
            if number is not None:
                variables += _part(self._other_state(local, ranks), number)
        self._of_start = False
        self._pending = Comparison(variables, when, ranks, complete)

    def _other_state(self, local: set[int], ranks: ProcessSet) -> list[Variable]:
        """Lists the other state that is equal on all ranks: of optimizers and joined statistics."""
        model, ranks_id = self._model, ranks.process_set_id
        others = adapted.adapted_variables(model)
        others += adapted.joined_statistics(model, lambda layer: _set_of(layer) in (0, ranks_id))
        others = [v for v in others if _is_shared(v, local)]
        for optimizer in training.optimizers_of(model):
            own = local | {key_of(v) for v in training.not_shared_by(optimizer)}
            others += [v for v in keras_compat.optimizer_variables(optimizer) if _is_shared(v, own)]
        return others

    def _finish(self, step: Step, together: bool) -> None:
        pending, self._pending = self._pending, None
        if pending is None:
            return
        unreduced = [key_of(variable) for variable in step.unreduced()]
        known = self._known | self._kept_for({*self._known, *unreduced})
        names = pending.finish(self._action, self._of_start, unreduced, known, together)
        if names and self._action != "heal":
            self._known |= pending.differing()

    def _kept_for(self, keys: set[int]) -> set[int]:
        """Returns the keys of the optimizers' variables for some weights, which differ as well."""
        trained = self._model.trainable_variables if keys else []
        of = [variable for variable in trained if key_of(variable) in keys]
        optimizers = training.optimizers_of(self._model) if of else []
        return {key_of(s) for o in optimizers for s in training.slots_of(o, of, trained)}


def _part(variables: list[Variable], number: int) -> list[Variable]:
    """Returns an eighth of the variables; the next number gives the next eighth."""
    count = math.ceil(len(variables) / _PARTS)
    first = number * count
    return [variables[place % len(variables)] for place in range(first, first + count)]


def _set_of(layer: Layer) -> int | None:
    """Returns the number of the process set over which a layer's moments are taken."""
    return getattr(layer, "tfhvd_process_set", global_process_set).process_set_id


def _is_shared(variable: Variable, local: Collection[int]) -> bool:
    """Whether a variable must be equal on all ranks.

    A variable whose gradient is its new value, such as a scale of float8, depends on its rank's
    data.
    """
    overwritten = getattr(variable, "overwrite_with_gradient", False)
    return not overwritten and key_of(variable) not in local
