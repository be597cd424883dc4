"""`fit` in step with the other ranks: ranks may have unequal data, and stop together.

| what happens on one rank | what the ranks do |
|---|---|
| its batches end before the others' | it joins: they average over the ranks that have batches |
| its batch is smaller | averages are weighted by samples |
| the epoch is over | ranks with fewer updates take over the state of the rank with most |
| a callback sets `stop_training` in an epoch | it joins; the others stop a step later |
| a callback sets it after an epoch, or `fit` ends | all stop |
| it is asked to stop: SIGTERM, `hvd.request_stop` | all save, and stop after the same step |
| it validates, or saves, alone | the others wait for it at the end of the epoch |
| BackupAndRestore continues with another epoch | all begin with rank 0's epoch, step and state |
| it has another learning rate when an epoch begins | all take rank 0's |
| it joins a running elastic job | it warms up, and begins with rank 0's next epoch and state |
| it joins after that `fit` | it continues with the others' history: `joining.completed_fits` |
| it updates variables from its own gradients | an error after a step: `checks.sync_check` |

The weights of the ranks and the wish to stop travel with the negotiation of the gradients, and need
no further collective in a step. Each epoch begins with a small collective, and two follow it.

Gradients are reduced by distributed optimizers, or by the tapes of a model's `train_step`. Tapes
are known only after the first step; see `FitSession.active`. Rank 0 in this table is the first rank
of the process set.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tfhvd.compat import keras as keras_compat
from tfhvd.compat.batches import expect_any_number
from tfhvd.compat.surroundings import require_tensorflow
from tfhvd.job import process
from tfhvd.keras.callbacks.base import Callback
from tfhvd.keras.callbacks.lists import inserted
from tfhvd.keras.checks.sync_check import check_batches
from tfhvd.keras.fit import data_position, evaluation, progress_bars
from tfhvd.keras.fit.one_fit import only_fit
from tfhvd.keras.fit.progress_bars import is_one_of_several
from tfhvd.keras.fit.session import FitSession
from tfhvd.keras.fit.stopping import stops_on_request
from tfhvd.keras.fit.weighted_steps import keep_losses_joined, weighted_steps
from tfhvd.keras.joining import completed_fits
from tfhvd.keras.joining.fit_warmup import Coming, rehearse
from tfhvd.keras.wrap import jit
from tfhvd.keras.wrap.hooks import reducer_of
from tfhvd.keras.wrap.model_state import process_set_of, reducing_optimizers
from tfhvd.keras.wrap.saved_arguments import keep_in_h5
from tfhvd.ops import sync_monitor
from tfhvd.runtime.membership import membership
from tfhvd.runtime.process_sets import global_process_set, has_peers

if TYPE_CHECKING:
    from tfhvd.compat.types import Instead, Logs, Model


def keep_in_step(package: str) -> None:
    """Makes `fit` of a Keras keep its ranks in step, and report gradients that are not reduced.

    Args:
        package: "keras" or "tf_keras", imported.
    """
    sync_monitor.note_keras_updates()
    jit.avoid(package)
    keras_compat.surround(package, "fit", "keep the ranks in step", lambda _: True, _around_fit)
    keep_losses_joined(package)
    check_batches(package)
    keep_in_h5(package)
    expect_any_number(
        package,
        lambda: membership.generation() > 0 or data_position.is_resumed(),
        data_position.steps_left,
    )
    shown = "choose who shows bars"
    keras_compat.surround(package, "evaluate", shown, is_one_of_several, evaluation.around_evaluate)
    keras_compat.surround(
        package, "predict", shown, is_one_of_several, completed_fits.around_predict
    )


def keep_imported_in_step() -> None:
    """Calls `keep_in_step` for every Keras that is imported already."""
    for package in keras_compat.imported_keras():
        keep_in_step(package)


@contextlib.contextmanager
def _around_fit(model: Model, arguments: dict[str, Any]) -> Iterator[Instead | None]:
    with data_position.followed(arguments), stops_on_request(arguments):
        if is_one_of_several(model):
            yield from _among_others(model, arguments)
        else:
            yield None


def _among_others(model: Model, arguments: dict[str, Any]) -> Iterator[Instead | None]:
    progress_bars.choose(model, arguments)
    if not _may_train_together(model):
        yield None
        return
    instead = completed_fits.ended(model, arguments)
    if instead is None:
        came = rehearse(model, arguments)
        if not membership.is_apart:
            with _in_step(model, arguments, came):
                yield None
            return
        # The others have finished this `fit` meanwhile; or nothing reduces its gradients.
        instead = completed_fits.ended(model, arguments) or completed_fits.alone(model)
    yield instead


def _may_train_together(model: Model) -> bool:
    require_tensorflow(model, process.size())
    optimizers = reducing_optimizers(model)
    if not optimizers:
        return sync_monitor.is_asked_for() or keras_compat.has_own_train_step(model)
    return has_peers(reducer_of(optimizers[0]).options.process_set)


@contextlib.contextmanager
def _in_step(model: Model, arguments: dict[str, Any], came: Coming) -> Iterator[None]:
    """Adds the callbacks that keep ranks in step to the callbacks of `fit`."""
    with only_fit(process_set_of(model) or global_process_set):
        yield from _trained(model, arguments, came)


def _trained(model: Model, arguments: dict[str, Any], came: Coming) -> Iterator[None]:
    given = arguments.get("callbacks")
    epochs = FitSession(model, arguments, came)
    epochs.agree_on_argument(arguments)
    completed = False
    try:
        callbacks = inserted([_First(epochs)], given, [_Last(epochs)])
        with weighted_steps(model, epochs.step), callbacks as arguments["callbacks"]:
            yield
        completed = True
    finally:
        epochs.let_go()
        completed_fits.note(epochs, completed)


class _First(Callback):
    """The callback before the user's callbacks."""

    def __init__(self, epochs: FitSession) -> None:
        super().__init__()
        self._epochs = epochs

    def on_train_begin(self, logs: Logs = None) -> None:
        self._epochs.begin(self.params)

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        self._epochs.begin_epoch()

    def on_test_begin(self, logs: Logs = None) -> None:
        self._epochs.end_training()  # of the epoch before this validation

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        self._epochs.end_training()

    def on_train_end(self, logs: Logs = None) -> None:
        self._epochs.note_before_end()


class _Last(Callback):
    """The callback after the user's callbacks."""

    def __init__(self, epochs: FitSession) -> None:
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
