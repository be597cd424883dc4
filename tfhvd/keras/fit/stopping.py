"""`fit` stops after the step in which the ranks agree that one of them was asked to stop."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tfhvd.job import process
from tfhvd.keras.callbacks.base import Callback
from tfhvd.keras.callbacks.lists import inserted, ours
from tfhvd.keras.wrap.model_state import process_set_of
from tfhvd.runtime.process_sets import ProcessSet, global_process_set
from tfhvd.runtime.stop import StopRequested, is_agreed, requested_by_sigterm

if TYPE_CHECKING:
    from tfhvd.compat.types import Logs

_logger = logging.getLogger("tfhvd")


@contextlib.contextmanager
def stops_on_request(arguments: dict[str, Any]) -> Iterator[None]:
    """Surrounds `fit`, and adds the callbacks that stop it after a step or before the next epoch.

    Args:
        arguments: the arguments of `fit`, by name.
    """
    if not process.is_initialized():
        yield
        return
    given = arguments.get("callbacks")
    savers = [callback for callback in ours(given) if callback.saves_before_stop]
    before, after = _BetweenEpochs(savers), _AfterStep(savers)
    with (
        requested_by_sigterm() if savers else contextlib.nullcontext(),
        inserted([before], given, [after]) as arguments["callbacks"],
    ):
        yield


class _Stops(Callback):
    """Stops `fit` at the same step on all ranks.

    Args:
        savers: the callbacks that save before `fit` stops.
    """

    def __init__(self, savers: Sequence[Callback]) -> None:
        super().__init__()
        self._savers = savers
        self._found: ProcessSet | None = None

    def _ranks(self) -> ProcessSet | None:
        """Returns the ranks that train the model; None if each rank trains it by itself."""
        self._found = self._found or process_set_of(self.model)
        return self._found if process.is_one_of_several() else global_process_set

    def _stop_if_agreed(self, where: str) -> None:
        ranks = self._ranks()
        if ranks is None or not is_agreed(ranks):
            return
        for saver in self._savers:
            saver.on_train_end()
        if ranks.rank() == 0:
            _logger.info("fit stops %s on all ranks, because one of them was asked to stop.", where)
        raise StopRequested


class _BetweenEpochs(_Stops):
    """Stops before the user's callbacks, which have done nothing for the next epoch yet."""

    _has_trained = False

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        if self._has_trained:
            self._stop_if_agreed(f"before epoch {epoch} (the first one is 0)")
        self._has_trained = True


class _AfterStep(_Stops):
    """Stops after the user's callbacks.

    After the last step of an epoch it leaves the stop to `_BetweenEpochs`, if a callback awaits the
    end of the epoch.
    """

    acts_on_batches = True
    comes_last = True

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        if not any(saver.awaits_end_of_epoch for saver in self._savers):
            self._stop_if_agreed("in the middle of an epoch")
