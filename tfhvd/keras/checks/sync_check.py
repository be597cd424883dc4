"""UpdateCheck: checks whether the first step has updated variables from local gradients only.

Such an update is a mistake only if all ranks train the model: one rank may also train a private
model, while the others wait or do something else. All ranks are known to train the model if it
reduces some gradients, or if a callback meets all ranks. Otherwise a rendezvous tells, for which no
rank waits.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tfhvd.compat import keras as keras_compat
from tfhvd.job import process
from tfhvd.keras.fit.progress_bars import is_one_of_several
from tfhvd.keras.fit.weighted_steps import weighted_steps
from tfhvd.keras.wrap.model_state import may_reduce, step_of
from tfhvd.ops import sync_monitor
from tfhvd.runtime.native import load_native

if TYPE_CHECKING:
    from tfhvd._native import Rendezvous
    from tfhvd.compat.types import Model, Variable

_logger = logging.getLogger("tfhvd")
_LATEST = 5.0  # seconds from the beginning of an epoch, for ranks that begin the epoch later
_LONGEST_RENDEZVOUS = 20.0  # seconds; a longer one would be reported as stalled
_CHECKED = "_tfhvd_batch_checked"  # an attribute of a model


class UpdateCheck:
    """The check of one `fit`.

    Args:
        model: of either Keras.
        together: whether all ranks are known to be in this `fit`.
    """

    _is_alone = False  # this process has waited for the others once, and not all came

    def __init__(self, model: Model, together: bool) -> None:
        self._write = _what_to_write(model)
        self._together = together
        self._over = not sync_monitor.is_asked_for()
        self._left: list[Variable] | None = None  # not known before the first step
        self._rendezvous: Rendezvous | None = None
        self._begun = 0.0

    def begin_epoch(self) -> None:
        """Joins the rendezvous of the ranks that begin an epoch."""
        if not self._over and not self._together:
            self._rendezvous = load_native().Rendezvous()
            self._begun = time.monotonic()

    def after_step(self, step: sync_monitor.Step, together: bool) -> None:
        """Checks the updates of the step, as soon as all ranks are known to be in this `fit`.

        Args:
            step: the record of what the model's steps do.
            together: whether the gradients show already that all ranks are in this `fit`.

        Raises:
            NotSynchronizedError: unless TFHVD_CHECK_SYNC is warn or off.
        """
        if self._over:
            return
        if self._left is None:
            self._left = step.unreduced()
        met = self._rendezvous is not None and self._rendezvous.is_complete()
        if self._left and not (self._together or together or met):
            if time.monotonic() - self._begun > _LONGEST_RENDEZVOUS:
                self._rendezvous = None
            return
        self._over, self._rendezvous = True, None
        sync_monitor.complain(self._left, "After the first step of fit", self._write)

    def end_epoch(self, step: sync_monitor.Step | None = None) -> None:
        """Checks a last time, if the epoch had a step, and leaves the rendezvous."""
        if self._rendezvous is not None and self._left and step is not None:
            while not (self._rendezvous.is_complete() or self._is_alone or self._is_late()):
                time.sleep(0.01)
            UpdateCheck._is_alone = not self._rendezvous.is_complete()
            self.after_step(step, together=False)
        self._rendezvous = None

    def _is_late(self) -> bool:
        return time.monotonic() - self._begun > _LATEST


def check_batches(package: str) -> None:
    """Makes `train_on_batch` of a Keras count the ranks by their batches, as `fit` does.

    If the optimizer is not distributed, `train_on_batch` warns once for each model, except with
    TFHVD_CHECK_SYNC=off. It never raises an error: one rank may train a private model, and no other
    rank need call anything at the same time.

    Args:
        package: "keras" or "tf_keras", imported.
    """
    use = "see whether gradients are reduced"
    keras_compat.surround(package, "train_on_batch", use, is_one_of_several, _around_batch)


@contextlib.contextmanager
def _around_batch(model: Model, _arguments: dict[str, Any]) -> Iterator[None]:
    if may_reduce(model):
        with weighted_steps(model, step_of(model) or sync_monitor.Step()):
            yield
        return
    yield
    if not sync_monitor.is_asked_for() or vars(model).get(_CHECKED):
        return
    vars(model)[_CHECKED] = True  # past Keras' __setattr__
    name = type(getattr(model, "optimizer", None)).__name__
    _logger.warning(
        "train_on_batch on rank %d: %s is not a distributed optimizer, so the weights of this "
        "model will differ between %s that train it. Write: %s TFHVD_CHECK_SYNC=off "
        "checks nothing.",
        process.rank(),
        name,
        sync_monitor.who_differs(),
        _what_to_write(model),
    )


def _what_to_write(model: Model) -> str:
    if keras_compat.has_own_train_step(model):
        write = (
            "in train_step, `tape = hvd.DistributedGradientTape(tape)` before tape.gradient, or "
            "optimizers that are made by hvd.DistributedOptimizer(optimizer)."
        )
    else:
        name = type(getattr(model, "optimizer", None)).__name__
        write = (
            f"model.compile(hvd.DistributedOptimizer(keras.optimizers.{name}(...)), ...); for a "
            "model from a file, model = hvd.load_model(path); for one that is compiled, "
            "model.optimizer = hvd.DistributedOptimizer(model.optimizer)."
        )
    return (
        f"{write} For a variable that is meant to differ between ranks, call "
        "optimizer.register_local_var(v) or tape.register_local_source(v)."
    )
