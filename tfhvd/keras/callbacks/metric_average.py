"""MetricAverageCallback: every rank sees the metrics of all ranks."""

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
    """Replaces each metric at the end of an epoch by the metric of all ranks' joined data.

    The metrics of Keras keep sums. This callback adds up the sums of all ranks. From the total,
    each metric (a mean, AUC, precision, F1, IoU or R2, with one number or one for each class) finds
    the value that one rank would find in all data. Other entries are averaged over the ranks: the
    result of a metric whose class defines its own `update_state`, and an entry that a callback or a
    `train_step` has made. The average is weighted by samples if all ranks know their number. The
    first rank warns of it once.

    Place it before callbacks that use metrics (EarlyStopping, ReduceLROnPlateau, checkpoints,
    TensorBoard): they then decide the same on every rank. `fit` moves such callbacks of Keras and
    of tfhvd behind it. If some ranks lack a metric, as when only rank 0 validates, it is joined
    over the ranks that have it and given to all ranks, and the first rank warns once. It calls one
    collective in each epoch, of the ranks in the optimizer's process set.

    In `evaluate`, with `callbacks=[MetricAverageCallback()]` on every rank, all ranks return the
    metrics of the joined data. Without it, each rank returns the metrics of its data.

    Args:
        device: the device on which the metrics are gathered, "" for the default.
        sums: names of metrics of your own classes whose states add up as well: the state for all
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
        self.evaluated: Logs = None  # the joined results of the latest `evaluate`
        self._phases: dict[str, metric_states.States] = {}  # of this epoch
        self._in_epoch = False

    def set_params(self, params: dict[str, object]) -> None:
        """Takes the parameters at the beginning of a `fit` or `evaluate`."""
        super().set_params(params)
        self._in_epoch = False
        self.evaluated = None

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Drops the states of the epoch before."""
        self._phases.clear()
        self._in_epoch = True

    def on_test_begin(self, logs: Logs = None) -> None:
        """Copies the states of training, because validation resets them."""
        if self._in_epoch:
            self._take("")

    def on_test_end(self, logs: Logs = None) -> None:
        """Copies the states of validation; in `evaluate`, joins `logs` in place."""
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
        # The property of Keras 3 raises an error if the callback has no model.
        return getattr(self, "_model", None) or getattr(self, "model", None)


@functools.cache
def _report_once(key: str, having: tuple[int, ...], ranks: int) -> None:
    """Warns that some ranks lack a metric: by mistake, or because only rank 0 validates."""
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
