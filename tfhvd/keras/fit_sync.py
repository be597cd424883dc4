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
| variables are updated from its own gradients | an error after the first step: `runtime.updates` |

Weights and the wish to stop travel with the negotiation of the gradients, and cost no step a
collective of its own. Each epoch begins with a small one, and two follow it.

Gradients are reduced by distributed optimizers, or by the tapes of a `train_step` of the model's
own. Of the latter nothing is known before the first step: see `_Epochs.active`. Rank 0 is the first
one of the process set.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tfhvd.compat import keras as keras_compat
from tfhvd.compat.surroundings import require_tensorflow
from tfhvd.gradients.indexed_slices import forget_ways
from tfhvd.keras import agreement, compilation, progress_bars
from tfhvd.keras.callbacks.base import Callback
from tfhvd.keras.callbacks.lists import inserted, ours, saves, warn_of_order
from tfhvd.keras.compression_state import gathered
from tfhvd.keras.divergence import DivergenceCheck
from tfhvd.keras.model_state import (
    broadcast_state,
    local_keys,
    optimizers_of,
    process_set_of,
    reducing_optimizers,
    remember_step,
    step_of,
)
from tfhvd.keras.optimizer_hooks import accumulator_of, reducer_of
from tfhvd.keras.progress_bars import has_peers
from tfhvd.keras.update_check import UpdateCheck, check_batches, watched_step
from tfhvd.ops import allgather, join
from tfhvd.runtime import process, updates
from tfhvd.runtime.library import load_native
from tfhvd.runtime.process_sets import ProcessSet

if TYPE_CHECKING:
    from tfhvd.compat.types import Logs, Model, Optimizer

_logger = logging.getLogger("tfhvd")
_UNKNOWN = _LEAVES = -1
_ALONE = ProcessSet([0])


def keep_in_step(package: str) -> None:
    """Makes `fit` of a Keras keep its ranks in step, and say where gradients are not reduced.

    Args:
        package: "keras" or "tf_keras", imported.
    """
    updates.note_keras_updates()
    compilation.avoid(package)
    keras_compat.surround(package, "fit", "keep the ranks in step", has_peers, _around_fit)
    check_batches(package)
    progress_bars.choose_outside_of_fit(package)


def keep_imported_in_step() -> None:
    """Does so for every Keras that is imported by now."""
    for package in keras_compat.imported_keras():
        keep_in_step(package)


@contextlib.contextmanager
def _around_fit(model: Model, arguments: dict[str, Any]) -> Iterator[None]:
    progress_bars.choose(model, arguments)
    with _in_step(model, arguments) if _may_train_together(model) else contextlib.nullcontext():
        yield


def _may_train_together(model: Model) -> bool:
    require_tensorflow(model, process.size())
    optimizers = reducing_optimizers(model)
    if not optimizers:
        return updates.is_asked_for() or keras_compat.has_own_train_step(model)
    return reducer_of(optimizers[0]).options.process_set.size() > 1


@contextlib.contextmanager
def _in_step(model: Model, arguments: dict[str, Any]) -> Iterator[None]:
    """Adds what keeps ranks in step to the callbacks that `fit` is given."""
    given = arguments.get("callbacks")
    warn_of_order(given)
    check = UpdateCheck(model, together=any(c.meets_all_ranks for c in ours(given)))
    epochs = _Epochs(model, check, DivergenceCheck(model, ours(given)), saves(given, model))
    epochs.agree_on_argument(arguments)
    attributes = vars(model)
    if step_of(model) is None:
        model.train_function = None  # made by somebody else, for a step that is not weighted
    own_step = model.train_step
    # Past Keras' __setattr__; a model may have a train_step of its own there already.
    replaced = attributes.get("train_step")
    attributes["train_step"] = watched_step(own_step, epochs.step)
    try:
        with inserted(_First(epochs), given, _Last(epochs)) as arguments["callbacks"]:
            yield
    finally:
        if replaced is None:
            del attributes["train_step"]
        else:
            attributes["train_step"] = replaced
        epochs.let_go()


class _Epochs:
    """This rank's part in one `fit` of several ranks."""

    def __init__(
        self, model: Model, check: UpdateCheck, replicas: DivergenceCheck, saves: bool
    ) -> None:
        self.model = model
        self.saves = saves  # a callback of this rank does, at the end of an epoch
        # What the train function was traced for: it is not always traced anew.
        self.step = step_of(model) or updates.Step()
        self._start = agreement.Start(model)
        self._rates = agreement.LearningRates()
        self._check = check
        self._replicas = replicas
        self._epoch = 0
        self._found: ProcessSet | None = None
        self._params: dict[str, Any] = {}
        self._agreed = False  # on the steps
        self._apart = False  # on the initial epoch that they were given
        self._behind = False  # rank 0's state is to be taken over as soon as there is a model
        self._train_function: Callable[..., Any] | None = None  # Keras' own
        self._training = False
        self._calls = 0
        self._updates_before = 0
        self._told = False  # another rank asked this one to stop
        self._over = False
        self._asked: list[int] = []  # the ranks that wanted to stop
        self._leaves = False  # this `fit` is over, and no callback of it saves any more
        self._gathered = contextlib.ExitStack()  # of compressions, while callbacks may save

    @property
    def active(self) -> bool:
        """Whether gradients are reduced, as far as this rank knows by now."""
        return self._ranks.size() > 1

    @property
    def _optimizers(self) -> list[Optimizer]:
        return optimizers_of(self.model)

    @property
    def _ranks(self) -> ProcessSet:
        """The ranks that train together: this one alone as long as nothing is known of others."""
        if self._found is None:
            self._found = process_set_of(self.model)
        return self._found or _ALONE

    @property
    def _numbers(self) -> Sequence[int]:
        """The ranks' numbers in the job."""
        return self._ranks.ranks or range(process.size())

    def begin(self, params: dict[str, Any]) -> None:
        """Counts the steps from now on."""
        self._params = params
        if self.active:
            self._agree_on_steps()
        self._count_calls()

    def _agree_on_steps(self) -> None:
        """Agrees on the steps of an epoch, which callbacks may go by: the most that a rank has."""
        self._agreed = True
        own = [self._params.get("steps") or _UNKNOWN, *self._replicas.wanted()]
        told = self._gather("steps", own)
        self._replicas.take(told[0, 1:])
        steps = told[:, 0]
        if (steps != _UNKNOWN).all():
            self._params["steps"] = int(steps.max())

    def agree_on_argument(self, arguments: dict[str, Any]) -> None:
        """Agrees on the `initial_epoch` of `fit`, for which tf_keras makes its data."""
        own = self._start.initial_epoch = arguments.get("initial_epoch") or 0
        if self.active:
            [epoch, *others] = self._gather("initial_epoch", [own])[:, 0]
            self._apart = any(other != epoch for other in others)
            if own != epoch:
                self._start.initial_epoch = arguments["initial_epoch"] = int(epoch)
                self._start.say((own, 0), (int(epoch), 0), self._numbers[0])

    def agree_on_start(self) -> None:
        """Begins where rank 0 does, after the callbacks of the user have had their say."""
        if self.active:
            self._agree_on_start(self._start.own(self._params.get("steps")))

    def _agree_on_start(self, own: tuple[int, int]) -> None:
        ready = keras_compat.all_built(self.model)
        starts = self._gather("start", [*own, self._updates(), ready])
        alike = not self._apart and (starts[:, :3] == starts[0, :3]).all()
        if alike or len(starts) < self._ranks.size():
            return
        self._start.take(tuple(starts[0, :2]), own, self._numbers[0])
        self._behind = not starts[:, 3].all()
        if not self._behind:
            self._take_over_state(0)

    def let_go(self) -> None:
        """Gives the model back what is its own."""
        self._check.end_epoch()
        self._replicas.leave()
        self._start.undo()
        self._gathered.close()
        if self._train_function is not None:
            self.model.train_function = self._train_function

    def agree_on_rates(self, epoch: int) -> None:
        """Takes rank 0's learning rates, after the callbacks of the user have set theirs."""
        self._epoch = epoch
        if self.active:
            self._take_rates(self._gather("rates", self._rates.packed(self._optimizers)))

    def _take_rates(self, of_ranks: np.ndarray) -> None:
        if len(of_ranks) == self._ranks.size():
            self._rates.take(self._optimizers, of_ranks[0], self._numbers[0], self._epoch)

    def begin_epoch(self) -> None:
        self._check.begin_epoch()
        self._training = True
        self._calls = 0
        self._updates_before = self._updates()

    def end_training(self) -> None:
        """Waits until the others have done their steps; brings all ranks to one state."""
        if not self._training or not self.active:
            return
        self._training = False
        self._replicas.settle()
        load_native().join(self._ranks.process_set_id, bool(self.model.stop_training))
        made = [self._calls, self._updates() - self._updates_before]
        told = self._gather("progress", [*made, _LEAVES if self._leaves else self.saves])
        made, saves = told[:, :2], told[:, 2]
        if (made != made[0]).any():
            furthest = max(range(len(made)), key=lambda rank: tuple(made[rank]))
            self._take_over_state(furthest)
        alike = bool((made[:, 0] == made[0, 0]).all())
        most = int(made[:, 0].max()) * keras_compat.steps_of_a_call(self.model)
        self._replicas.after_epoch(most, alike, self.step)
        everyone = len(saves) == self._ranks.size() and not (saves == _LEAVES).any()
        if everyone and 0 < saves.sum() < len(saves):
            self._gather_compression(self._numbers[int(saves.argmax())])

    def _gather_compression(self, root_rank: int) -> None:
        """Lets a rank that saves for all have what the others have left out, for this epoch."""
        optimizers = reducing_optimizers(self.model)
        compressions = [reducer_of(optimizer).options.compression for optimizer in optimizers]
        self._gathered.enter_context(gathered(compressions, root_rank, self._ranks))

    def end_epoch(self, is_last: bool) -> None:
        """Stops all ranks where one stops."""
        self._gathered.close()
        self._check.end_epoch(self.step)
        if not self.active:
            return
        asks = bool(self.model.stop_training) and not self._told
        rates = self._rates.packed(self._optimizers)
        votes = self._gather("stop", [asks, asks or is_last, *rates])
        self._take_rates(votes[:, 2:])
        everyone = len(votes) == self._ranks.size()  # else somebody is at the end already
        if everyone and not votes[:, 1].any():
            return
        self._over = True
        self._asked = [rank for rank, vote in enumerate(votes) if everyone and vote[0]]
        if everyone and not (is_last or self.model.stop_training or self._asked):
            _logger.warning(
                "fit ends on rank %d, because ranks %s have no more epochs; pass the same number "
                "of epochs on every rank.",
                process.rank(),
                [self._numbers[rank] for rank in np.flatnonzero(votes[:, 1])],
            )
        self.model.stop_training = True

    def end(self) -> None:
        """Ends the others' `fit` where this one ended before its time; waits for the others."""
        load_native().note_position(0, 0)
        if not self.active:
            return
        if not self._over:
            # As tf_keras does where data is used up: the others are in an epoch that is none here.
            self.begin_epoch()
            self._leaves = True
            self.model.stop_training = True
            self.end_training()
        elif 0 < len(self._asked) < self._ranks.size():
            # A callback may have put back weights where it stopped, as EarlyStopping does.
            self._take_over_state(self._asked[0])
        join(self._ranks)

    def _count_calls(self) -> None:
        train_function = self.model.train_function
        native, steps = load_native(), keras_compat.steps_of_a_call(self.model)

        def call(iterator: Any) -> Any:
            if self.active:
                self._replicas.before_step(
                    self.step, self._ranks, not (self._behind or self._calls)
                )
            result = train_function(iterator)
            self._calls += 1
            native.note_position(self._epoch + 1, self._calls * steps)
            self._check.after_step(self.step, self.active)
            if not self.active:
                return result
            if not self._agreed:
                self._agree_on_steps()
                self._agree_on_start((self._epoch, 0))
                self.agree_on_rates(self._epoch)
            if self._behind:
                self._behind = False
                self._take_over_state(0)
            self._replicas.after_step(self._calls * steps, steps, self.step, self._ranks)
            if native.stop_asked(self._ranks.process_set_id):
                self._told = not self.model.stop_training
                self.model.stop_training = True
            return result

        self._train_function = train_function
        self.model.train_function = call
        for function in (train_function, call):
            remember_step(function, self.step)

    def _updates(self) -> int:
        """Counts the updates that the optimizers have made."""
        counters = [getattr(optimizer, "iterations", None) for optimizer in self._optimizers]
        return sum(int(tf.convert_to_tensor(count)) for count in counters if count is not None)

    def _gather(self, what: str, values: Sequence[float]) -> np.ndarray:
        """Returns the ranks' numbers, a row each."""
        own = tf.constant([[int(value) for value in values]], tf.int64)
        return allgather(own, name=f"fit/{what}", process_set=self._ranks).numpy()

    def _take_over_state(self, rank: int) -> None:
        for optimizer in reducing_optimizers(self.model):
            accumulator_of(optimizer).begin_anew()
        local = local_keys(self.model, self.step)
        broadcast_state(self.model, self._optimizers, self._numbers[rank], local, self._ranks)
        forget_ways(self.model.trainable_variables)


class _First(Callback):
    """Comes before the callbacks of the user."""

    def __init__(self, epochs: _Epochs) -> None:
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

    def __init__(self, epochs: _Epochs) -> None:
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
