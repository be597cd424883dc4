"""FitSession: one rank's part in a `fit` of several ranks, and its agreements with the others."""

from __future__ import annotations

import contextlib
import logging
import zlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tfhvd.compat import keras as keras_compat
from tfhvd.compat.training import optimizers_of
from tfhvd.data.repartition import changes
from tfhvd.job import process
from tfhvd.keras.callbacks.lists import ours, saves
from tfhvd.keras.checks.divergence import DivergenceCheck
from tfhvd.keras.checks.same_data import SameData
from tfhvd.keras.checks.sync_check import UpdateCheck
from tfhvd.keras.fit import start, weighted_steps
from tfhvd.keras.fit.one_state import OneState
from tfhvd.keras.joining.admission import Admission
from tfhvd.keras.joining.histories import Past
from tfhvd.keras.wrap.compression_state import gathered
from tfhvd.keras.wrap.first_batch import build
from tfhvd.keras.wrap.hooks import reducer_of
from tfhvd.keras.wrap.model_state import (
    process_set_of,
    reducing_optimizers,
    remember_step,
    step_of,
    take_over,
)
from tfhvd.ops import allgather, sync_monitor
from tfhvd.ops.admission import let_in
from tfhvd.runtime.failpoints import come_to
from tfhvd.runtime.membership import membership
from tfhvd.runtime.native import load_native
from tfhvd.runtime.process_sets import ProcessSet, global_process_set, has_peers

if TYPE_CHECKING:
    from tfhvd.compat.types import Model, Optimizer
    from tfhvd.keras.joining.fit_warmup import Coming

_logger = logging.getLogger("tfhvd")
_UNKNOWN = _LEAVES = _LIKE_NOBODY = -1
_ALONE = ProcessSet([0])


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
        self._has_come = came.has_come
        self._traces_otherwise = came.traces_otherwise
        self._start = start.Start(model)
        self._rates = start.LearningRates()
        together = any(callback.meets_all_ranks for callback in self._callbacks)
        self._check = UpdateCheck(model, together)
        self._replicas = DivergenceCheck(model, self._callbacks)
        self._state = OneState(model, self._callbacks, SameData(model, arguments))
        self._past = Past(model)
        self._epoch = 0
        self._found: ProcessSet | None = global_process_set if came.knows_no_step else None
        self._params: dict[str, Any] = {}
        self._agreed = False  # the ranks have agreed on the steps of an epoch
        self._apart = False  # the ranks were given different initial epochs
        self._behind = False  # all ranks take rank 0's state as soon as all models are built
        self._train_function: Callable[..., Any] | None = None  # Keras' own
        self._training = False
        self._epochs = 0  # number of epochs that have begun
        self._calls = 0
        self._updates_before = 0
        self._unequal = False  # the ranks' numbers of steps in the last epoch differed
        self._told = False  # another rank asked this one to stop
        self._over = False
        self._asked: list[int] = []  # the ranks that wanted to stop
        self._leaves = False  # this `fit` is over, and none of its callbacks saves any more
        self._gathered = contextlib.ExitStack()  # states of compressions, while callbacks may save

    @property
    def active(self) -> bool:
        """Whether gradients are reduced, as far as this rank knows already."""
        return has_peers(self._ranks)

    @property
    def in_process_set(self) -> bool:
        """Whether only a part of the job's ranks train in this `fit`."""
        return self.active and self._ranks.process_set_id != 0

    @property
    def _optimizers(self) -> list[Optimizer]:
        return optimizers_of(self.model)

    @property
    def _ranks(self) -> ProcessSet:
        """The ranks that train together; only this rank until a step shows what it reduces."""
        if self._found is None:
            self._found = process_set_of(self.model)
        return self._found or _ALONE

    @property
    def _numbers(self) -> Sequence[int]:
        """The ranks' numbers in the job."""
        return self._ranks.ranks or range(process.size())

    def begin(self, params: dict[str, Any]) -> None:
        """Agrees on the steps of an epoch, and begins to count them."""
        self._params = params
        if self.active:
            self._agree_on_steps()
        self._count_calls()

    def _agree_on_steps(self) -> None:
        """Agrees on the steps of an epoch, for callbacks: the largest number of any rank."""
        self._agreed = True
        traced = zlib.crc32("\n".join(sorted(self.step.names)).encode())  # 0 for none
        if self._traces_otherwise:
            traced, self._traces_otherwise = _LIKE_NOBODY, False
        own = [self._params.get("steps") or _UNKNOWN, traced, *self._replicas.wanted()]
        told = self._gather("steps", own)
        if len(set(told[:, 1]) - {0}) > 1 and not self._training:
            self._trace_anew()
        self._replicas.take(told[0, 2:])
        if (told[:, 0] != _UNKNOWN).all():
            self._params["steps"] = int(told[:, 0].max())

    def _trace_anew(self) -> None:
        """Traces the step again, so that its collectives have equal names on all ranks.

        The names depend on whether the model had all its variables when the step was traced. Now
        the model has them on every rank.
        """
        _logger.info("fit on rank %d traces its step anew, as all ranks do.", process.rank())
        counts = self._train_function is not None
        self.model.make_train_function(force=True)
        if counts:
            self._count_calls()

    def agree_on_argument(self, arguments: dict[str, Any]) -> None:
        """Agrees on the `initial_epoch` of `fit` before tf_keras prepares the data with it."""
        own = self._start.initial_epoch = arguments.get("initial_epoch") or 0
        if self.active:
            [epoch, *others] = self._gather("initial_epoch", [own])[:, 0]
            self._apart = any(other != epoch for other in others)
            if own != epoch:
                self._start.initial_epoch = arguments["initial_epoch"] = int(epoch)
                self._start.say((own, 0), (int(epoch), 0), self._numbers[0])

    def agree_on_start(self) -> None:
        """Begins at rank 0's epoch and step, after the user's callbacks."""
        if self.active:
            # This rank has joined after the last epoch, and the others have agreed on the end.
            self._over = self._has_come and self._start.initial_epoch >= self._params["epochs"]
            self._agree_on_start(self._start.own(self._params.get("steps")))

    def _agree_on_start(self, own: tuple[int, int]) -> None:
        if membership.is_elastic and self._ranks.process_set_id == 0:
            changes.agree_on_places()
            self._past.begin()
        ready = keras_compat.all_built(self.model)
        told = [*own, self._updates(), ready, *self._state.at_start(self.step, ready)]
        starts = self._gather("start", told)
        alike = not self._apart and (starts[:, :3] == starts[0, :3]).all()
        one = alike and not self._state.is_to_be_made(starts[:, 3:])
        if one or len(starts) < self._ranks.size():
            return
        if tuple(starts[0, :2]) != own:
            self._start.take(tuple(starts[0, :2]), own, self._numbers[0])
        self._behind = not starts[:, 3].all()
        if not self._behind:
            self._begin_as_one(says=alike)

    def _begin_as_one(self, says: bool) -> None:
        """Takes over rank 0's state."""
        self._take_over_state(0)
        if says and not membership.came_later and process.rank() == self._numbers[0]:
            self._state.say_start(self._numbers[0])

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
            self._past.tell()
            self._take_rates(self._gather("rates", self._rates.packed(self._optimizers)))

    def _take_rates(self, of_ranks: np.ndarray, quiet: bool = False) -> None:
        if len(of_ranks) == self._ranks.size():
            first = self._numbers[0]
            self._rates.take(self._optimizers, of_ranks[0], first, self._epoch, quiet)

    def begin_epoch(self) -> None:
        """Begins to count the steps of an epoch."""
        self._check.begin_epoch()
        if not membership.lets_in_at_commits:  # else hvd.elastic.run has the data divided again
            changes.warn_of_arrays()
        self._training = True
        self._epochs += 1
        self._calls = 0
        self._updates_before = self._updates()

    def end_training(self) -> None:
        """Waits until all ranks have done their steps; gives all ranks one state."""
        if not self._training or not self.active:
            return
        self._training = False
        self._replicas.settle()
        load_native().join(self._ranks.process_set_id, bool(self.model.stop_training))
        made = [self._calls, self._updates() - self._updates_before]
        batch = weighted_steps.batch_that_a_loss_reduces(self.model, self.step, self._calls)
        saving = _LEAVES if self._leaves else self._saves()
        told = self._gather("progress", [*made, saving, batch, self._state.data.after_epoch()])
        self._state.data.look(told[:, 4])
        made, saving = told[:, :2], told[:, 2]
        weighted_steps.warn_of_unequal(self.model, told[:, 3], self._numbers)
        if (made != made[0]).any():
            furthest = max(range(len(made)), key=lambda rank: tuple(made[rank]))
            self._take_over_state(furthest)
        alike = bool((made[:, 0] == made[0, 0]).all())
        self._unequal = not alike
        most = int(made[:, 0].max()) * keras_compat.steps_of_a_call(self.model)
        self._replicas.after_epoch(most, alike, self.step)
        everyone = len(saving) == self._ranks.size() and not (saving == _LEAVES).any()
        if everyone and 0 < saving.sum() < len(saving):
            self._gather_compression(self._numbers[int(saving.argmax())])

    def _saves(self) -> bool:
        """Whether a callback of this rank saves at the end of an epoch, as on rank 0."""
        membership.refresh()  # this rank may have become rank 0 after a failure
        return saves(self._given, self.model)

    def _gather_compression(self, root_rank: int) -> None:
        """Gives the rank that saves for all the others' compression state, until the epoch ends."""
        optimizers = reducing_optimizers(self.model)
        compressions = [reducer_of(optimizer).options.compression for optimizer in optimizers]
        self._gathered.enter_context(gathered(compressions, root_rank, self._ranks))

    def end_epoch(self, is_last: bool) -> None:
        """Agrees on the end of `fit`: if one rank stops, all stop. Admits ranks that wait."""
        self._gathered.close()
        self._check.end_epoch(self.step)
        if not self.active:
            return
        asks = bool(self.model.stop_training) and not self._told
        comes = self.admission.is_due(
            in_process_set=self.in_process_set, epoch=self._epochs, is_last=is_last
        )
        own = [asks, asks or is_last, comes, *self._rates.packed(self._optimizers)]
        votes = self._gather("stop", own)
        # After unequal numbers of steps, callbacks that count steps have set different rates.
        self._take_rates(votes[:, 3:], quiet=self._unequal)
        everyone = len(votes) == self._ranks.size()  # else a rank is at the end already
        goes_on = everyone and not votes[:, 1].any()
        ends = everyone and votes[:, 1].all() and not votes[:, 0].any()
        if (goes_on or ends) and votes[:, 2].any():
            self._let_others_in()
        if goes_on:
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
        self._agree_on_start((epoch, 0))
        come_to("fit_begun_anew")

    def note_before_end(self) -> None:
        """Computes the state's digest before the `on_train_end` of the user's callbacks."""
        if self.active:
            self._state.note_before_end(self.step)

    def _end_as_one(self) -> None:
        """Gives all ranks one state and one learning rate after the user's callbacks."""
        rates = self._rates.packed(self._optimizers)
        told = self._gather("end", [*self._state.at_end(self.step), *rates])
        root = self._state.root_at_end(told[:, :2])
        if root is None or len(told) < self._ranks.size():
            self._take_rates(told[:, 2:])
            return
        self._take_over_state(root)
        if process.rank() == self._numbers[0]:
            self._state.say_end(self._numbers[root])

    def end(self) -> None:
        """Waits for the others; if this `fit` has ended early, ends theirs after this epoch."""
        load_native().note_position(0, 0)
        if not self.active:
            return
        if not self._over:
            # tf_keras ends so when its data are used up: only the others are in an epoch.
            self.begin_epoch()
            self._leaves = True
            self.model.stop_training = True
            self.end_training()
        elif 0 < len(self._asked) < self._ranks.size():
            # On the rank that stopped, a callback may have restored weights, as EarlyStopping does.
            self._take_over_state(self._asked[0])
        else:
            self._end_as_one()
        self._past.tell()  # to ranks that joined after the last epoch
        load_native().join(self._ranks.process_set_id, False)

    def _count_calls(self) -> None:
        train_function = self.model.train_function
        native, steps = load_native(), keras_compat.steps_of_a_call(self.model)

        def call(iterator: Any) -> Any:
            if self._behind and build(self.model, iterator):
                self._behind = False
                own = [True, *self._state.at_start(self.step, ready=True)]
                self._begin_as_one(says=self._state.is_to_be_made(self._gather("built", own)))
            if self.active:
                self._replicas.before_step(
                    self.step, self._ranks, not (self._behind or self._calls)
                )
            result = self._state.data.seen(train_function(iterator))
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
        """Returns the values of all ranks, a row for each rank."""
        own = tf.constant(np.array([[int(value) for value in values]], np.int64))
        return allgather(own, name=f"fit/{what}", process_set=self._ranks).numpy()

    def _take_over_state(self, rank: int) -> None:
        take_over(self.model, self.step, rank, self._ranks, self._state.kept)
