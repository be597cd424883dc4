"""FitSession: one rank's part in a `fit` of several ranks, and its agreements with the others."""

from __future__ import annotations

import contextlib
import enum
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tfhvd.compat import keras as keras_compat
from tfhvd.data.repartition import changes
from tfhvd.job import process
from tfhvd.keras.callbacks.lists import ours, saves
from tfhvd.keras.checks.divergence import DivergenceCheck
from tfhvd.keras.checks.same_data import SameData
from tfhvd.keras.checks.sync_check import UpdateCheck
from tfhvd.keras.fit import weighted_steps
from tfhvd.keras.fit.fit_ranks import FitRanks
from tfhvd.keras.fit.one_state import OneState
from tfhvd.keras.fit.start import Agreement, LearningRates, StartAgreement
from tfhvd.keras.joining.admission import Admission
from tfhvd.keras.wrap.compression_state import gathered
from tfhvd.keras.wrap.hooks import reducer_of
from tfhvd.keras.wrap.model_state import reducing_optimizers, remember_step, step_of, updates_of
from tfhvd.ops import sync_monitor
from tfhvd.ops.admission import let_in
from tfhvd.runtime.failpoints import come_to
from tfhvd.runtime.membership import membership
from tfhvd.runtime.native import load_native

if TYPE_CHECKING:
    from tfhvd.compat.types import Model
    from tfhvd.keras.joining.fit_warmup import Coming

_logger = logging.getLogger("tfhvd")
_LEAVES = -1


class Phase(enum.Enum):
    """Where a `fit` is.

        BETWEEN_EPOCHS <-> IN_EPOCH
              |               |
              v               v
            OVER           LEAVING

    It is LEAVING if it ends on this rank while the others are in an epoch, as if in one as well.
    """

    BETWEEN_EPOCHS = "between epochs"
    IN_EPOCH = "in an epoch"
    LEAVING = "ends before the others'"
    OVER = "over on all ranks"


class FitSession:
    """This rank's part in one `fit` of several ranks.

    Args:
        model: of either Keras.
        arguments: of the `fit`, by their names.
        came: how this rank has joined the `fit`.

    Attributes:
        admission: admits joining ranks.
    """

    def __init__(self, model: Model, arguments: dict[str, Any], came: Coming) -> None:
        self.model = model
        self._given = arguments.get("callbacks")
        self._callbacks = ours(self._given)
        # The record belongs to the train function, which may stay traced from an earlier `fit`.
        self.step = step_of(model) or sync_monitor.Step()
        self.admission = Admission(model)
        self._ranks = FitRanks(model, came.knows_no_step)
        self._came = came
        self._rates = LearningRates(model)
        together = any(callback.meets_all_ranks for callback in self._callbacks)
        self._check = UpdateCheck(model, together)
        self._replicas = DivergenceCheck(model, self._callbacks)
        self._state = OneState(model, self._callbacks, SameData(model, arguments))
        self._start = StartAgreement(model, self.step, self._ranks, self._state, came)
        self._phase = Phase.BETWEEN_EPOCHS
        self._epoch = 0
        self._params: dict[str, Any] = {}
        self._train_function: Callable[..., Any] | None = None  # Keras' own
        self._epochs = 0  # number of epochs that have begun
        self._calls = 0
        self._updates_before = 0
        self._unequal = False  # the ranks' numbers of steps in the last epoch differed
        self._was_told = False  # another rank asked this one to stop
        self._asked: list[int] = []  # the ranks that wanted to stop
        self._gathered = contextlib.ExitStack()  # states of compressions, while callbacks may save

    @property
    def active(self) -> bool:
        """Whether gradients are reduced, as far as this rank knows already."""
        return self._ranks.are_several

    @property
    def in_process_set(self) -> bool:
        """Whether only a part of the job's ranks train in this `fit`."""
        return self._ranks.are_a_part

    def begin(self, params: dict[str, Any]) -> None:
        """Agrees on the steps of an epoch, and begins to count them."""
        self._params = params
        if self.active:
            self._agree_on_steps()
        self._count_calls()

    def _agree_on_steps(self) -> None:
        trains = self._phase is Phase.IN_EPOCH
        self._start.agree_on_steps(
            self._params, self._replicas, None if trains else self._trace_anew
        )

    def _trace_anew(self) -> None:
        """Traces the step again, so that its collectives have equal names on all ranks.

        The names depend on whether the model had all its variables when the step was traced. Now
        the model has them on every rank.
        """
        _logger.info("fit on rank %d traces its step again, as all ranks do.", process.rank())
        counts = self._train_function is not None
        self.model.make_train_function(force=True)
        if counts:
            self._count_calls()

    def agree_on_argument(self, arguments: dict[str, Any]) -> None:
        """Agrees on the `initial_epoch` of `fit` before tf_keras prepares the data with it."""
        self._start.agree_on_argument(arguments)

    def agree_on_start(self) -> None:
        """Begins at rank 0's epoch and step, after the user's callbacks."""
        if not self.active:
            return
        if self._came.has_come and self._start.initial_epoch >= self._params["epochs"]:
            self._phase = Phase.OVER  # this rank has joined after the last epoch
        self._start.agree_on_epoch(self._params.get("steps"))

    def let_go(self) -> None:
        """Restores everything that this `fit` has replaced in the model."""
        self._check.end_epoch()
        self._replicas.leave()
        self._start.undo()
        self._gathered.close()
        if self._train_function is not None:
            self.model.train_function = self._train_function

    def agree_on_rates(self, epoch: int) -> None:
        """Takes rank 0's learning rates and history, after the user's callbacks have set theirs."""
        self._epoch = epoch
        if self.active:
            self._start.past.tell()
            self._take_rates(self._ranks.gather("rates", self._rates.packed()))

    def _take_rates(self, of_ranks: np.ndarray, quiet: bool = False) -> None:
        if self._ranks.are_all_in(of_ranks):
            self._rates.take(of_ranks[0], self._ranks.numbers[0], self._epoch, quiet)

    def begin_epoch(self) -> None:
        """Begins to count the steps of an epoch."""
        self._check.begin_epoch()
        if not membership.lets_in_at_commits:  # else hvd.elastic.run has the data divided again
            changes.warn_of_arrays()
        self._phase = Phase.IN_EPOCH
        self._epochs += 1
        self._calls = 0
        self._updates_before = updates_of(self.model)

    def end_training(self) -> None:
        """Waits until all ranks have done their steps; gives all ranks one state."""
        if self._phase is Phase.IN_EPOCH and self.active:
            self._phase = Phase.BETWEEN_EPOCHS
            self._meet_after_epoch()

    def _meet_after_epoch(self) -> None:
        self._replicas.settle()
        load_native().join(self._ranks.process_set.process_set_id, bool(self.model.stop_training))
        made = [self._calls, updates_of(self.model) - self._updates_before]
        batch = weighted_steps.batch_that_a_loss_reduces(self.model, self.step, self._calls)
        saving = _LEAVES if self._phase is Phase.LEAVING else self._saves()
        own = [*made, saving, batch, self._state.data.after_epoch()]
        told = self._ranks.gather("progress", own)
        self._state.data.look(told[:, 4])
        made, savings = told[:, :2], told[:, 2]
        weighted_steps.warn_of_unequal(self.model, told[:, 3], self._ranks.numbers)
        if (made != made[0]).any():
            furthest = max(range(len(made)), key=lambda rank: tuple(made[rank]))
            self._start.take_state(furthest)
        alike = bool((made[:, 0] == made[0, 0]).all())
        self._unequal = not alike
        most = int(made[:, 0].max()) * keras_compat.steps_of_a_call(self.model)
        self._replicas.after_epoch(most, alike, self.step)
        everyone = self._ranks.are_all_in(savings) and not (savings == _LEAVES).any()
        if everyone and 0 < savings.sum() < len(savings):
            self._gather_compression(self._ranks.numbers[int(savings.argmax())])

    def _saves(self) -> bool:
        """Whether a callback of this rank saves at the end of an epoch, as on rank 0."""
        membership.refresh()  # this rank may have become rank 0 after a failure
        return saves(self._given, self.model)

    def _gather_compression(self, root_rank: int) -> None:
        """Gives the rank that saves for all the others' compression state, until the epoch ends."""
        optimizers = reducing_optimizers(self.model)
        compressions = [reducer_of(optimizer).options.compression for optimizer in optimizers]
        self._gathered.enter_context(gathered(compressions, root_rank, self._ranks.process_set))

    def end_epoch(self, is_last: bool) -> None:
        """Agrees on the end of `fit`: if one rank stops, all stop. Admits ranks that wait."""
        self._gathered.close()
        self._check.end_epoch(self.step)
        if not self.active:
            return
        asks = bool(self.model.stop_training) and not self._was_told
        comes = self.admission.is_due(
            in_process_set=self.in_process_set, epoch=self._epochs, is_last=is_last
        )
        own = [asks, asks or is_last, comes, *self._rates.packed()]
        votes = self._ranks.gather("stop", own)
        # After unequal numbers of steps, callbacks that count steps have set different rates.
        self._take_rates(votes[:, 3:], quiet=self._unequal)
        everyone = self._ranks.are_all_in(votes)  # else a rank is at the end already
        goes_on = everyone and not votes[:, 1].any()
        ends = everyone and votes[:, 1].all() and not votes[:, 0].any()
        if (goes_on or ends) and votes[:, 2].any():
            self._let_others_in()
        if goes_on:
            return
        self._phase = Phase.OVER
        self._asked = [rank for rank, vote in enumerate(votes) if everyone and vote[0]]
        if everyone and not (is_last or self.model.stop_training or self._asked):
            _logger.warning(
                "fit ends on rank %d, because ranks %s have no more epochs; pass the same number "
                "of epochs on every rank.",
                process.rank(),
                [self._ranks.numbers[rank] for rank in np.flatnonzero(votes[:, 1])],
            )
        self.model.stop_training = True

    def _let_others_in(self) -> None:
        """Admits ranks, which begin their `fit` now, and repeats all agreements of the start.

        The joining ranks then have rank 0's state. Callbacks that meet all ranks repeat their
        `on_train_begin`.
        """
        come_to("fit_lets_in")
        if not let_in():
            return
        come_to("fit_agrees_anew")
        epoch = self._epoch + 1
        self.agree_on_argument({"initial_epoch": epoch})
        self._replicas = DivergenceCheck(self.model, self._callbacks)
        self._agree_on_steps()
        for callback in self._callbacks:
            if callback.meets_all_ranks:
                callback.on_train_begin()
        self._start.agree_on_state((epoch, 0))
        come_to("fit_begun_anew")

    def note_before_end(self) -> None:
        """Computes the state's digest before the `on_train_end` of the user's callbacks."""
        if self.active:
            self._state.note_before_end(self.step)

    def _end_as_one(self) -> None:
        """Gives all ranks one state and one learning rate after the user's callbacks."""
        rates = self._rates.packed()
        told = self._ranks.gather("end", [*self._state.at_end(self.step), *rates])
        root = self._state.root_at_end(told[:, :2])
        if root is None or not self._ranks.are_all_in(told):
            self._take_rates(told[:, 2:])
            return
        self._start.take_state(root)
        if self._ranks.is_first:
            self._state.say_end(self._ranks.numbers[root])

    def end(self) -> None:
        """Waits for the others; if this `fit` has ended early, ends theirs after this epoch."""
        load_native().note_position(0, 0)
        if not self.active:
            return
        if self._phase is not Phase.OVER:
            # tf_keras ends so when its data are used up: only the others are in an epoch.
            self.begin_epoch()
            self._phase = Phase.LEAVING
            self.model.stop_training = True
            self._meet_after_epoch()
        elif 0 < len(self._asked) < self._ranks.process_set.size():
            # On the rank that stopped, a callback may have restored weights, as EarlyStopping does.
            self._start.take_state(self._asked[0])
        else:
            self._end_as_one()
        self._start.past.tell()  # to ranks that joined after the last epoch
        load_native().join(self._ranks.process_set.process_set_id, False)

    def _count_calls(self) -> None:
        train_function = self.model.train_function
        native, steps = load_native(), keras_compat.steps_of_a_call(self.model)

        def call(iterator: Any) -> Any:
            self._start.before_step(iterator)
            if self.active:
                awaits = self._start.agreement is Agreement.AWAITS_MODELS
                is_first = not (awaits or self._calls)
                self._replicas.before_step(self.step, self._ranks.process_set, is_first)
            result = self._state.data.seen(train_function(iterator))
            self._calls += 1
            native.note_position(self._epoch + 1, self._calls * steps)
            self._check.after_step(self.step, self.active)
            if not self.active:
                return result
            if self._start.agreement is Agreement.OPEN:
                self._agree_on_steps()
                self._start.agree_on_state((self._epoch, 0))
                self.agree_on_rates(self._epoch)
            self._start.after_step()
            ranks = self._ranks.process_set
            self._replicas.after_step(self._calls * steps, steps, self.step, ranks)
            if native.stop_asked(ranks.process_set_id):
                self._was_told = not self.model.stop_training
                self.model.stop_training = True
            return result

        self._train_function = train_function
        self.model.train_function = call
        for function in (train_function, call):
            remember_step(function, self.step)
