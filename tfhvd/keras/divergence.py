"""`fit` compares the ranks' weights every so many steps."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from tfhvd.compat import keras as keras_compat
from tfhvd.compat.variables import key_of
from tfhvd.keras.callbacks.divergence import DivergenceCallback
from tfhvd.keras.model_state import local_keys
from tfhvd.replicas import ACTIONS, Comparison
from tfhvd.runtime.library import load_native

if TYPE_CHECKING:
    from tfhvd.compat.types import Model, Variable
    from tfhvd.keras.callbacks.base import Callback
    from tfhvd.runtime.process_sets import ProcessSet
    from tfhvd.runtime.updates import Step


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
            self._begin("before the first step of fit", step, ranks, complete)
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
            self._begin(f"after step {done} of fit", step, ranks)

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

    def _begin(self, when: str, step: Step, ranks: ProcessSet, complete: bool = True) -> None:
        variables: list[Variable] = []
        if self._model.built:
            local = local_keys(self._model, step)
            variables = [v for v in self._model.trainable_variables if _is_shared(v, local)]
        self._of_start = False
        self._pending = Comparison(variables, when, ranks, complete)

    def _finish(self, step: Step, together: bool) -> None:
        pending, self._pending = self._pending, None
        if pending is None:
            return
        unreduced = [key_of(variable) for variable in step.unreduced()]
        names = pending.finish(self._action, self._of_start, unreduced, self._known, together)
        if names and self._action != "heal":
            self._known |= pending.differing()


def _is_shared(variable: Variable, local: Collection[int]) -> bool:
    """Whether a variable is to be equal on all ranks.

    What has its new value as a gradient, as scales of float8, holds what its rank has seen.
    """
    overwritten = getattr(variable, "overwrite_with_gradient", False)
    return not overwritten and key_of(variable) not in local
