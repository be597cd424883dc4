"""The number of batches in an epoch, which Keras reads from the data once, when `fit` begins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tfhvd.compat import keras as keras_compat
from tfhvd.compat import private

_USE = "let epochs have fewer batches than there were at first"


def expect_any_number(
    package: str, now: Callable[[], bool], left: Callable[[bool], int | None]
) -> None:
    """Allows an epoch to have fewer batches, if `now` returns True.

    Without this tf_keras would end the training; Keras 3 would warn of an interruption, and
    continue. If the number of batches is known, no step begins without data: counters and seeds,
    which need no data, would count such a step.

    Args:
        package: "keras" or "tf_keras", imported.
        now: called in each epoch.
        left: takes whether callbacks know already that the epoch has begun; returns the number of
            its batches, once, if the epoch begins in its middle.
    """
    if package == keras_compat.KERAS_3:
        epochs = private.of_module("keras.src.trainers.epoch_iterator", "EpochIterator", _USE)
        private.replace_method(
            epochs, "_enumerate_iterator", lambda original: _no_more_than(original, left)
        )
        if hasattr(epochs, "_interrupted_warning"):  # releases without this method warn once
            private.replace_method(
                epochs, "_interrupted_warning", lambda original: _without_a_word(original, now)
            )
        return
    module = "tf_keras.src.engine.data_adapter"
    handler = private.of_module(module, "DataHandler", _USE)
    datasets = private.of_module(module, "DatasetAdapter", _USE)
    private.replace_method(
        handler, "enumerate_epochs", lambda original: _anew(original, datasets, now, left)
    )


def _without_a_word(original: Callable[[Any], None], now: Callable[[], bool]) -> Callable[..., Any]:
    def warn(epochs: Any) -> None:
        if not now():
            original(epochs)

    return warn


def _no_more_than(
    original: Callable[[Any], Any], left: Callable[[bool], int | None]
) -> Callable[..., Any]:
    def enumerate_iterator(epochs: Any) -> Iterator[Any]:
        known = epochs._num_batches
        epochs._num_batches = left(True) or known
        try:
            yield from original(epochs)
        finally:
            epochs._num_batches = known

    return enumerate_iterator


def _anew(
    original: Callable[[Any], Any],
    datasets: Any,
    now: Callable[[], bool],
    left: Callable[[bool], int | None],
) -> Callable[..., Any]:
    def enumerate_epochs(handler: Any) -> Iterator[Any]:
        adapter = private.attribute(handler, "_adapter", _USE)
        given = private.attribute(handler, "_steps_per_epoch", _USE)
        several = private.attribute(handler, "_steps_per_execution", _USE)
        # Arrays, and a generator's elements, continue from one epoch to the next without an end.
        ends = isinstance(adapter, datasets) and adapter.should_recreate_iterator()
        for epoch in original(handler):
            steps = left(False)
            if ends and given is None and (steps or (now() and int(several) == 1)):
                handler._inferred_steps = steps  # None: until the data of this epoch end
            yield epoch
            if ends and given is None and now():
                handler._insufficient_data = False

    return enumerate_epochs
