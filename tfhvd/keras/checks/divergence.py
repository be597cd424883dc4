"""`fit` compares the ranks' weights every so many steps, and a part of what else is to be equal."""

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

_PARTS = 8  # of the state beside weights: comparisons until all of it has been looked at


class DivergenceCheck:
    """Of one `fit`. All ranks that still have batches call all of it at the same steps.

    A comparison begins after a step, and its result is looked at after the next one, or after the
    epoch: on all ranks at the same place, because they heal together.

    Args:
        model: of either Keras.
        callbacks: those of tfhvd that `fit` is given.
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
        self._before = 0  # steps of the epochs before
        self._known: set[int] = set()  # keys of variables

    def wanted(self) -> list[int]:
        """Returns what this rank would do, in numbers."""
        return [self._every, ACTIONS.index(self._action)]

    def take(self, wanted: Sequence[int]) -> None:
        """Does as one rank would."""
        self._every, self._action = int(wanted[0]), ACTIONS[int(wanted[1])]

    def before_step(self, step: Step, ranks: ProcessSet, alike: bool) -> None:
        """Compares what training begins with.

        Args:
            step: what is known of the model's steps.
            ranks: those that train together.
            alike: whether they begin alike: no rank is behind, and none has made a step of this
                epoch. Of some models it is known only after a step that they reduce anything.
        """
        if self._every and not self._begun and not self._before and alike:
            # After a step, what is not built yet is a layer that nobody calls.
            complete = keras_compat.all_built(self._model)
            self._begin("before the first step of fit", step, ranks, complete=complete)
            self._of_start = True
        self._begun = True

    def after_step(self, steps: int, of_call: int, step: Step, ranks: ProcessSet) -> None:
        """Looks at the last result, and begins another comparison every so many steps.

        Args:
            steps: of this epoch.
            of_call: how many of them were the last call's.
            step: what is known of the model's steps.
            ranks: those that train together.
        """
        self._finish(step, together=True)
        done = self._before + steps
        if self._every and done // self._every > (done - of_call) // self._every:
            self._begin(f"after step {done} of fit", step, ranks, done // self._every)

    def settle(self) -> None:
        """Waits for the collective under way: a rank may submit none after it has joined."""
        if self._pending is not None:
            self._pending.wait()

    def after_epoch(self, steps: int, alike: bool, step: Step) -> None:
        """Looks at what is left.

        Args:
            steps: that most ranks have made in this epoch.
            alike: whether all have made as many.
            step: what is known of the model's steps.
        """
        self._finish(step, together=alike)
        self._before += steps

    def leave(self) -> None:
        """Ends what is under way, after an error."""
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
        """Begins the comparison of that number: without one, of the weights alone.

        Before the first step the optimizers of some ranks may have no variables.
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
        """Lists what else is equal on all ranks: optimizers' state, and statistics of all data."""
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
        """Returns the keys of what optimizers keep for weights that are known to differ."""
        trained = self._model.trainable_variables if keys else []
        of = [variable for variable in trained if key_of(variable) in keys]
        optimizers = training.optimizers_of(self._model) if of else []
        return {key_of(s) for o in optimizers for s in training.slots_of(o, of, trained)}


def _part(variables: list[Variable], number: int) -> list[Variable]:
    """Returns an eighth of some variables: with the next number, the next one."""
    count = math.ceil(len(variables) / _PARTS)
    first = number * count
    return [variables[place % len(variables)] for place in range(first, first + count)]


def _set_of(layer: Layer) -> int | None:
    """Returns the number of the process set over which a layer's moments are taken."""
    return getattr(layer, "tfhvd_process_set", global_process_set).process_set_id


def _is_shared(variable: Variable, local: Collection[int]) -> bool:
    """Whether a variable is to be equal on all ranks.

    What has its new value as a gradient, as scales of float8, holds what its rank has seen.
    """
    overwritten = getattr(variable, "overwrite_with_gradient", False)
    return not overwritten and key_of(variable) not in local
