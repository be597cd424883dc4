"""MetricAverageCallback: every rank sees the metrics of all."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import tensorflow as tf

from tfhvd.keras.callbacks.base import Callback
from tfhvd.ops import allgather
from tfhvd.process import size


class MetricAverageCallback(Callback):
    """Replaces each metric at the end of an epoch by its average over the ranks that have it.

    Place it before callbacks that use metrics (EarlyStopping, ReduceLROnPlateau, checkpoints,
    TensorBoard): they then decide the same on every rank. A metric that some ranks lack, as when
    only rank 0 validates, is averaged over those that have it and given to all. One collective per
    epoch.

    Args:
        device: the device on which the metrics are gathered, "" for the default.

    Example:
        >>> callbacks = [hvd.callbacks.MetricAverageCallback(),
        keras.callbacks.EarlyStopping("val_loss")]
    """

    def __init__(self, device: str = "") -> None:
        super().__init__()
        self.device = device

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Averages `logs` in place."""
        if size() == 1 or logs is None:
            return
        own = {key: float(value) for key, value in logs.items() if _is_number(value)}
        with tf.device(self.device or None):
            gathered = allgather(_pack(own), name="MetricAverageCallback").numpy()
        logs.update(_average(_unpack(gathered)))


def _is_number(value: Any) -> bool:
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):
        return False
    return array.ndim == 0 and array.dtype.kind in "fiub"


def _pack(metrics: dict[str, float]) -> tf.Tensor:
    """Writes metrics as a line of JSON: lines can be gathered whatever is in them."""
    return tf.constant(np.frombuffer(json.dumps(metrics).encode() + b"\n", dtype=np.uint8))


def _unpack(gathered: np.ndarray) -> list[dict[str, float]]:
    return [json.loads(line) for line in gathered.tobytes().decode().splitlines()]


def _average(ranks: list[dict[str, float]]) -> dict[str, float]:
    keys = dict.fromkeys(key for metrics in ranks for key in metrics)
    return {
        key: float(np.mean([metrics[key] for metrics in ranks if key in metrics])) for key in keys
    }
