"""`fit` in step with the other ranks: ranks may have unequal data, and stop together.

| what happens on one rank | what the ranks do |
|---|---|
| its batches end before the others' | it joins: they average over what is there |
| its batch is smaller | averages are weighted by samples |
| the epoch is over | who has made fewer updates takes over the state of who has made most |
| a callback sets `stop_training` in an epoch | it joins; the others stop a step later |
| a callback sets it after an epoch, or `fit` ends | all stop |
| it validates, or saves, alone | the others wait for it at the end of the epoch |
| BackupAndRestore goes on with another epoch | all begin where rank 0 does, with its state |
| it has another learning rate when an epoch begins | all take rank 0's |
| it comes later, to an elastic job | it rehearses, and begins with rank 0's next epoch and state |
| it comes after that `fit` | it goes on with the others' history: `ended_fits` |
| variables are updated from its own gradients | an error after the first step: `runtime.updates` |

Weights and the wish to stop travel with the negotiation of the gradients, and cost no step a
collective of its own. Each epoch begins with a small one, and two follow it.

Gradients are reduced by distributed optimizers, or by the tapes of a `train_step` of the model's
own. Of the latter nothing is known before the first step: see `Epochs.active`. Rank 0 is the first
one of the process set.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tfhvd.compat import keras as keras_compat
from tfhvd.compat.batches import expect_any_number
from tfhvd.compat.surroundings import require_tensorflow
from tfhvd.keras import compilation, ended_fits, progress_bars
from tfhvd.keras.callbacks.base import Callback
from tfhvd.keras.callbacks.lists import inserted, warn_of_order
from tfhvd.keras.epochs import Coming, Epochs
from tfhvd.keras.model_state import reducing_optimizers, step_of
from tfhvd.keras.optimizer_hooks import reducer_of
from tfhvd.keras.progress_bars import is_one_of_several
from tfhvd.keras.rehearsal import rehearse
from tfhvd.keras.update_check import check_batches, watched_step
from tfhvd.runtime import process, updates
from tfhvd.runtime.membership import membership
from tfhvd.runtime.process_sets import has_peers

if TYPE_CHECKING:
    from tfhvd.compat.types import Instead, Logs, Model


def keep_in_step(package: str) -> None:
    """Makes `fit` of a Keras keep its ranks in step, and say where gradients are not reduced.

    Args:
        package: "keras" or "tf_keras", imported.
    """
    updates.note_keras_updates()
    compilation.avoid(package)
    keras_compat.surround(package, "fit", "keep the ranks in step", is_one_of_several, _around_fit)
    check_batches(package)
    expect_any_number(package, lambda: membership.generation() > 0)
    shown = "choose who shows bars"
    keras_compat.surround(package, "evaluate", shown, is_one_of_several, ended_fits.around_evaluate)
    keras_compat.surround(package, "predict", shown, is_one_of_several, ended_fits.around_predict)


def keep_imported_in_step() -> None:
    """Does so for every Keras that is imported by now."""
    for package in keras_compat.imported_keras():
        keep_in_step(package)


@contextlib.contextmanager
def _around_fit(model: Model, arguments: dict[str, Any]) -> Iterator[Instead | None]:
    progress_bars.choose(model, arguments)
    if not _may_train_together(model):
        yield None
        return
    instead = ended_fits.ended(model, arguments)
    if instead is None:
        came = rehearse(model, arguments)
        if not membership.is_apart:
            with _in_step(model, arguments, came):
                yield None
            return
        # The others have ended it meanwhile; or nothing reduces these gradients.
        instead = ended_fits.ended(model, arguments) or ended_fits.alone(model)
    yield instead


def _may_train_together(model: Model) -> bool:
    require_tensorflow(model, process.size())
    optimizers = reducing_optimizers(model)
    if not optimizers:
        return updates.is_asked_for() or keras_compat.has_own_train_step(model)
    return has_peers(reducer_of(optimizers[0]).options.process_set)


@contextlib.contextmanager
def _in_step(model: Model, arguments: dict[str, Any], came: Coming) -> Iterator[None]:
    """Adds what keeps ranks in step to the callbacks that `fit` is given."""
    given = arguments.get("callbacks")
    warn_of_order(given)
    epochs = Epochs(model, given, came)
    epochs.agree_on_argument(arguments)
    attributes = vars(model)
    if step_of(model) is None:
        model.train_function = None  # made by somebody else, for a step that is not weighted
    own_step = model.train_step
    # Past Keras' __setattr__; a model may have a train_step of its own there already.
    replaced = attributes.get("train_step")
    attributes["train_step"] = watched_step(own_step, epochs.step)
    completed = False
    try:
        with inserted(_First(epochs), given, _Last(epochs)) as arguments["callbacks"]:
            yield
        completed = True
    finally:
        if replaced is None:
            del attributes["train_step"]
        else:
            attributes["train_step"] = replaced
        epochs.let_go()
        ended_fits.note(epochs, completed)


class _First(Callback):
    """Comes before the callbacks of the user."""

    def __init__(self, epochs: Epochs) -> None:
        super().__init__()
        self._epochs = epochs

    def on_train_begin(self, logs: Logs = None) -> None:
        self._epochs.begin(self.params)

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        self._epochs.begin_epoch()

    def on_test_begin(self, logs: Logs = None) -> None:
        self._epochs.end_training()  # of the epoch that is validated

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        self._epochs.end_training()


class _Last(Callback):
    """Comes after them."""

    def __init__(self, epochs: Epochs) -> None:
        super().__init__()
        self._epochs = epochs

    def on_train_begin(self, logs: Logs = None) -> None:
        self._epochs.agree_on_start()

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        self._epochs.agree_on_rates(epoch)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        self._epochs.end_epoch(is_last=epoch + 1 >= self.params["epochs"])

    def on_train_end(self, logs: Logs = None) -> None:
        self._epochs.end()
