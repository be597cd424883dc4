"""MetricAverageCallback: every rank sees the metrics of all."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tfhvd.keras.callbacks.base import Callback
from tfhvd.keras.fit import metric_states
from tfhvd.keras.wrap.model_state import process_set_of
from tfhvd.runtime.process_sets import ProcessSet, global_process_set

if TYPE_CHECKING:
    from tfhvd.compat.types import Logs, Model

_logger = logging.getLogger("tfhvd")


class MetricAverageCallback(Callback):
    """Replaces each metric at the end of an epoch by that of the joined data of all ranks.

    The metrics of Keras keep sums. The sums of all ranks are added up, and each metric, whether it
    is a mean, AUC, precision, F1, IoU or R2, of one number or of one for each class, finds in them
    what one rank would find in all data. What has no such sums (a metric whose `update_state` is of
    another class, an entry that a callback or a `train_step` has made) is averaged over the ranks,
    which count by their samples or, where some rank does not know its samples, alike; the first
    rank says so once.

    Place it before callbacks that use metrics (EarlyStopping, ReduceLROnPlateau, checkpoints,
    TensorBoard): they then decide the same on every rank. Those of Keras and of tfhvd that are
    before it `fit` moves behind it. A metric that some ranks lack, as when only rank 0 validates,
    is joined over those that have it and given to all, and the first rank says so once. One
    collective per epoch, of the ranks in the optimizer's process set.

    In `evaluate`, with `callbacks=[MetricAverageCallback()]` on every rank, all ranks return the
    metrics of the joined data. Without it each rank returns those of its own.

    Args:
        device: the device on which the metrics are gathered, "" for the default.
        sums: names of metrics of classes of your own whose state adds up as well: the state of all
            samples is the sum of the ranks' states.

    Example:
        >>> callbacks = [
        ...     hvd.callbacks.MetricAverageCallback(),
        ...     keras.callbacks.EarlyStopping("val_loss"),
        ... ]
        >>> model.evaluate(dataset, callbacks=[hvd.callbacks.MetricAverageCallback()])
    """

    meets_all_ranks = True

    def __init__(self, device: str = "", sums: Iterable[str] = ()) -> None:
        super().__init__()
        self.device = device
        self.sums = frozenset(sums)
        self.evaluated: Logs = None  # what all ranks have found in the latest `evaluate`
        self._phases: dict[str, metric_states.States] = {}  # of this epoch
        self._in_epoch = False

    def set_params(self, params: dict[str, object]) -> None:
        """Takes the parameters of a `fit` or `evaluate` that begins."""
        super().set_params(params)
        self._in_epoch = False
        self.evaluated = None

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Begins anew."""
        self._phases.clear()
        self._in_epoch = True

    def on_test_begin(self, logs: Logs = None) -> None:
        """Takes the states of training: validation begins its own."""
        if self._in_epoch:
            self._take("")

    def on_test_end(self, logs: Logs = None) -> None:
        """Takes the states of validation, or joins what is evaluated by itself, in place."""
        if self._in_epoch:
            self._take(metric_states.VALIDATION)
            return
        self._phases.clear()
        self._take("")
        self._join(logs)
        self.evaluated = logs

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Joins `logs` in place."""
        self._in_epoch = False
        if "" not in self._phases:
            self._take("")
        self._join(logs)

    def _take(self, phase: str) -> None:
        model = self._model_of_fit()
        if model is not None and self._ranks().size() > 1:
            self._phases[phase] = metric_states.States(model, self.sums)

    def _join(self, logs: Logs) -> None:
        ranks = self._ranks()
        if ranks.size() == 1 or logs is None:
            return
        joined = metric_states.join(logs, self._phases, ranks, self.device)
        if ranks.rank() == 0:
            members = list(ranks.ranks or range(ranks.size()))
            for key, having in joined.having.items():
                _report_once(key, tuple(members[n] for n in having), len(members))
            for key, of in joined.averaged.items():
                _say_averaged(key, of)
        logs.update(joined.logs)

    def _ranks(self) -> ProcessSet:
        model = self._model_of_fit()
        return (model is not None and process_set_of(model)) or global_process_set

    def _model_of_fit(self) -> Model | None:
        # Keras 3 raises where a callback was given no model.
        return getattr(self, "_model", None) or getattr(self, "model", None)


@functools.cache
def _report_once(key: str, having: tuple[int, ...], ranks: int) -> None:
    """Says that not every rank has a metric: a mistake, or rank 0 validates alone."""
    _logger.warning(
        "MetricAverageCallback: '%s' is reported by ranks %s of %d only. It is joined over these "
        "and given to all. Unless only some ranks are to validate, report the same metrics on "
        "every rank.",
        key,
        list(having),
        ranks,
    )


@functools.cache
def _say_averaged(key: str, of: str) -> None:
    name = key.removeprefix(metric_states.VALIDATION)
    why = (
        f"it is of the class {of}, whose update_state is not Keras' own. If the state of all "
        "samples is the sum of the ranks' states, write "
        f"hvd.callbacks.MetricAverageCallback(sums=['{name}']), with the metric's name."
        if of
        else "it is not the result of one of the model's metrics."
    )
    _logger.warning(
        "MetricAverageCallback: '%s' is the mean of the ranks' results, weighted by samples, which "
        "need not be that of the joined data: %s",
        key,
        why,
    )
