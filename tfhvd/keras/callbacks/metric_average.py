"""MetricAverageCallback: every rank sees the metrics of all."""

from __future__ import annotations

import functools
import json
import logging
from typing import TYPE_CHECKING, Optional

import numpy as np
import tensorflow as tf

from tfhvd.compat import keras as keras_compat
from tfhvd.keras.callbacks.base import Callback
from tfhvd.keras.model_state import process_set_of
from tfhvd.ops import allgather
from tfhvd.runtime.process_sets import global_process_set

if TYPE_CHECKING:
    from tfhvd.compat.types import Logs, Model

_logger = logging.getLogger("tfhvd")


class MetricAverageCallback(Callback):
    """Replaces each metric at the end of an epoch by its average over the ranks that have it.

    Ranks count by their samples, so that the average is that of all samples; where some rank does
    not know its samples, as with a `train_step` that feeds no loss of Keras, all ranks count alike.
    Place it before callbacks that use metrics (EarlyStopping, ReduceLROnPlateau, checkpoints,
    TensorBoard): they then decide the same on every rank. A metric that some ranks lack, as when
    only rank 0 validates, is averaged over those that have it and given to all, and rank 0 says so
    once. One collective per epoch, of the ranks in the optimizer's process set.

    Args:
        device: the device on which the metrics are gathered, "" for the default.

    Example:
        >>> callbacks = [
        ...     hvd.callbacks.MetricAverageCallback(),
        ...     keras.callbacks.EarlyStopping("val_loss"),
        ... ]
    """

    meets_all_ranks = True

    def __init__(self, device: str = "") -> None:
        super().__init__()
        self.device = device
        self._trained: float | None = None  # samples of this epoch; None: not known (yet)
        self._validated: float | None = None

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Begins to count."""
        self._trained = self._validated = None

    def on_test_begin(self, logs: Logs = None) -> None:
        """Notes the samples that were trained: validation counts anew."""
        self._trained = self._seen()

    def on_test_end(self, logs: Logs = None) -> None:
        """Notes the samples that were validated."""
        self._validated = self._seen()

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Averages `logs` in place."""
        model = self._model_of_fit()
        ranks = (model is not None and process_set_of(model)) or global_process_set
        if ranks.size() == 1 or logs is None:
            return
        trained = self._seen() if self._trained is None else self._trained
        own = {
            key: (float(value), self._validated if key.startswith("val_") else trained)
            for key, value in logs.items()
            if _is_number(value)
        }
        with tf.device(self.device or None):
            gathered = allgather(
                _pack(own), name="MetricAverageCallback", process_set=ranks
            ).numpy()
        of_ranks = _unpack(gathered)
        if ranks.rank() == 0:
            _report_differences(of_ranks, list(ranks.ranks or range(ranks.size())))
        logs.update(_average(of_ranks))

    def _model_of_fit(self) -> Model | None:
        # Keras 3 raises where a callback was given no model.
        return getattr(self, "_model", None) or getattr(self, "model", None)

    def _seen(self) -> float | None:
        model = self._model_of_fit()
        return None if model is None else keras_compat.samples_seen(model)


def _is_number(value: object) -> bool:
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):
        return False
    return array.ndim == 0 and array.dtype.kind in "fiub"


# What a rank says of each metric: its value, and of how many samples it is (None: not known).
_Metrics = dict[str, tuple[float, Optional[float]]]


def _pack(metrics: _Metrics) -> tf.Tensor:
    """Writes metrics as a line of JSON: lines can be gathered whatever is in them."""
    return tf.constant(np.frombuffer(json.dumps(metrics).encode() + b"\n", dtype=np.uint8))


def _unpack(gathered: np.ndarray) -> list[_Metrics]:
    return [json.loads(line) for line in gathered.tobytes().decode().splitlines()]


def _average(of_ranks: list[_Metrics]) -> dict[str, float]:
    averages = {}
    for key in dict.fromkeys(key for metrics in of_ranks for key in metrics):
        values, samples = zip(*(metrics[key] for metrics in of_ranks if key in metrics))
        if all(n is not None for n in samples) and sum(samples) > 0:
            # A rank without samples may have anything, NaN included.
            pairs = [(value, n) for value, n in zip(values, samples) if n > 0]
            values, weights = zip(*pairs)
            averages[key] = float(np.average(values, weights=weights))
        else:
            averages[key] = float(np.mean(values))
    return averages


def _report_differences(of_ranks: list[_Metrics], members: list[int]) -> None:
    """Says which metrics not every rank has: a mistake, or rank 0 validates alone."""
    for key in dict.fromkeys(key for metrics in of_ranks for key in metrics):
        having = tuple(n for n, metrics in zip(members, of_ranks) if key in metrics)
        if len(having) < len(of_ranks):
            _report_once(key, having, len(of_ranks))


@functools.cache
def _report_once(key: str, having: tuple[int, ...], ranks: int) -> None:
    _logger.warning(
        "MetricAverageCallback: '%s' is reported by ranks %s of %d only. It is averaged over these "
        "and given to all. Unless only some ranks are to validate, report the same metrics on "
        "every rank.",
        key,
        list(having),
        ranks,
    )
