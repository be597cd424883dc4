"""`fit` in step with the other ranks: ranks may have unequal data, and stop together.

| what happens on one rank | what the ranks do |
|---|---|
| its batches end before the others' | it joins: they average over what is there |
| its batch is smaller | averages are weighted by samples |
| the epoch is over | who has made fewer updates takes over the state of who has made most |
| a callback sets `stop_training` in an epoch | it joins; the others stop a step later |
| a callback sets it after an epoch, or `fit` ends | all stop |
| it validates, or saves, alone | the others wait for it at the end of the epoch |

Weights and the wish to stop travel with the negotiation of the gradients, and cost no step a
collective of its own. Two small ones follow each epoch.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tfhvd import _compat, process, samples
from tfhvd.keras.callbacks.base import Callback
from tfhvd.keras.hooks import accumulator_of, reducer_of
from tfhvd.keras.state import broadcast_state, reducing_optimizers
from tfhvd.local_sources import key_of
from tfhvd.ops import allgather, join
from tfhvd.sparse import forget_ways

_logger = logging.getLogger("tfhvd")
_UNKNOWN = -1


def keep_in_step(package: str) -> None:
    """Makes `fit` of a Keras keep its ranks in step, for models with a distributed optimizer.

    Args:
        package: "keras" or "tf_keras", imported.
    """
    _compat.surround_fit(package, _has_peers, _in_step)


def _has_peers(model: Any) -> bool:
    optimizers = reducing_optimizers(model)
    return bool(optimizers) and process.is_initialized() and _ranks_of(optimizers).size() > 1


def _ranks_of(optimizers: list[Any]) -> Any:
    return reducer_of(optimizers[0]).options.process_set


@contextlib.contextmanager
def _in_step(model: Any, callbacks: Any) -> Iterator[Any]:
    """Gives the callbacks that `fit` is to be called with instead of `callbacks`."""
    epochs = _Epochs(model)
    first, last = _First(epochs), _Last(epochs)
    attributes = vars(model)
    if not getattr(model.train_function, "_tfhvd_weighted", False):
        model.train_function = None  # made by somebody else, for a step that is not weighted
    own_step = model.train_step
    # Past Keras' __setattr__; a model may have a train_step of its own there already.
    replaced = attributes.get("train_step")
    attributes["train_step"] = _weighted(own_step)
    try:
        with _inserted(first, callbacks, last) as extended:
            yield extended
    finally:
        if replaced is None:
            del attributes["train_step"]
        else:
            attributes["train_step"] = replaced
        epochs.let_go()


@contextlib.contextmanager
def _inserted(first: Any, callbacks: Any, last: Any) -> Iterator[Any]:
    if not _compat.is_callback_list(callbacks):
        given = [] if callbacks is None else tf.nest.flatten(callbacks)
        yield [first, *given, last]
        return
    given = callbacks.callbacks
    callbacks.callbacks = [first, *given, last]
    for own in (first, last):
        own.set_params(callbacks.params)
        own.set_model(callbacks.model)
    try:
        yield callbacks
    finally:
        callbacks.callbacks = given


def _weighted(train_step: Any) -> Any:
    @functools.wraps(train_step)
    def step(data: Any) -> Any:
        with samples.StepOf(samples.count(data)):
            return train_step(data)

    return step


class _Epochs:
    """This rank's part in one `fit` of several ranks."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self._optimizers = reducing_optimizers(model)
        self._ranks = _ranks_of(self._optimizers)
        self._numbers = self._ranks.ranks or range(process.size())  # in the job
        self._train_function: Any = None  # Keras' own
        self._training = False
        self._calls = 0
        self._updates_before = 0
        self._told = False  # another rank asked this one to stop
        self._over = False
        self._asked: list[int] = []  # the ranks that wanted to stop

    def begin(self, params: dict[str, Any]) -> None:
        """Agrees on the steps of an epoch, which callbacks may go by: the most that a rank has."""
        steps = self._gather("steps", [params.get("steps") or _UNKNOWN])[:, 0]
        if (steps != _UNKNOWN).all():
            params["steps"] = int(steps.max())
        self._count_calls()

    def let_go(self) -> None:
        """Gives the model its own function back."""
        if self._train_function is not None:
            self.model.train_function = self._train_function

    def begin_epoch(self) -> None:
        self._training = True
        self._calls = 0
        self._updates_before = self._updates()

    def end_training(self) -> None:
        """Waits until the others have done their steps; brings all ranks to one state."""
        if not self._training:
            return
        self._training = False
        process.native().join(self._ranks.process_set_id, bool(self.model.stop_training))
        made = self._gather("progress", [self._calls, self._updates() - self._updates_before])
        if (made != made[0]).any():
            furthest = max(range(len(made)), key=lambda rank: tuple(made[rank]))
            self._take_over_state(furthest)

    def end_epoch(self, is_last: bool) -> None:
        """Stops all ranks where one stops."""
        asks = bool(self.model.stop_training) and not self._told
        votes = self._gather("stop", [asks, asks or is_last])
        everyone = len(votes) == self._ranks.size()  # else somebody is at the end already
        if everyone and not votes[:, 1].any():
            return
        self._over = True
        self._asked = [rank for rank, vote in enumerate(votes) if everyone and vote[0]]
        if everyone and not (is_last or self.model.stop_training or self._asked):
            _logger.warning(
                "fit ends on rank %d, for other ranks have no more epochs. Expected: as many "
                "epochs on every rank. Received: fewer on ranks %s.",
                process.rank(),
                [self._numbers[rank] for rank in np.flatnonzero(votes[:, 1])],
            )
        self.model.stop_training = True

    def end(self) -> None:
        """Ends the others' `fit` where this one ended before its time; waits for the others."""
        if not self._over:
            # As tf_keras does where data is used up: the others are in an epoch that is none here.
            self.begin_epoch()
            self.model.stop_training = True
            self.end_training()
        elif 0 < len(self._asked) < self._ranks.size():
            # A callback may have put back weights where it stopped, as EarlyStopping does.
            self._take_over_state(self._asked[0])
        join(self._ranks)

    def _count_calls(self) -> None:
        train_function = self.model.train_function
        set_id = self._ranks.process_set_id
        stop_asked = process.native().stop_asked

        def call(iterator: Any) -> Any:
            result = train_function(iterator)
            self._calls += 1
            if stop_asked(set_id):
                self._told = not self.model.stop_training
                self.model.stop_training = True
            return result

        train_function._tfhvd_weighted = True
        self._train_function = train_function
        self.model.train_function = call

    def _updates(self) -> int:
        """Counts the updates that the optimizers have made."""
        counters = [getattr(optimizer, "iterations", None) for optimizer in self._optimizers]
        return sum(int(tf.convert_to_tensor(count)) for count in counters if count is not None)

    def _gather(self, what: str, values: list[Any]) -> np.ndarray:
        """Returns the ranks' numbers, a row each."""
        own = tf.constant([[int(value) for value in values]], tf.int64)
        return allgather(own, name=f"fit/{what}", process_set=self._ranks).numpy()

    def _take_over_state(self, rank: int) -> None:
        variables = self.model.trainable_variables
        local: set[int] = set()
        for optimizer in self._optimizers:
            keys = reducer_of(optimizer).local.keys()
            own = [variable for variable in variables if key_of(variable) in keys]
            local |= keys | {key_of(slot) for slot in _compat.slots_of(optimizer, own)}
            accumulator_of(optimizer).begin_anew()
        broadcast_state(self.model, self._optimizers, self._numbers[rank], local, self._ranks)
        forget_ways(variables)


class _First(Callback):
    """Comes before the callbacks of the user."""

    def __init__(self, epochs: _Epochs) -> None:
        super().__init__()
        self._epochs = epochs

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._epochs.begin(self.params)

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._epochs.begin_epoch()

    def on_test_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._epochs.end_training()  # of the epoch that is validated

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._epochs.end_training()


class _Last(Callback):
    """Comes after them."""

    def __init__(self, epochs: _Epochs) -> None:
        super().__init__()
        self._epochs = epochs

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._epochs.end_epoch(is_last=epoch + 1 >= self.params["epochs"])

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        self._epochs.end()
