"""SameData: warns if all ranks of a `fit` train on the same data, instead of a part each.

| the data | what is compared | when |
|---|---|---|
| arrays and tensors, shuffled by `fit` or not | a digest of some of their rows | `fit` begins |
| others that give the same batches | the loss, to the last bit | its first epoch is over |

The ranks send both with messages that they exchange anyway. Equal rows, such as rows of ones, prove
nothing. Ranks with local layers get no warning, because they may share the data on purpose.
"""

from __future__ import annotations

import hashlib
import logging
import math
import weakref
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import tensorflow as tf

from tfhvd.compat import keras as keras_compat
from tfhvd.keras.wrap.model_state import is_on_first_rank, local_keys, step_of
from tfhvd.ops import sync_monitor

if TYPE_CHECKING:
    from tfhvd.compat.types import Model

_logger = logging.getLogger("tfhvd")
_ROWS = 64  # at most so many rows are compared, from the first to the last
_BYTES = 1 << 20  # of these rows
_NOTHING = 0
_Logs = TypeVar("_Logs")
_told: weakref.WeakSet[Model] = weakref.WeakSet()


class SameData:
    """The digests of one rank's data in one `fit`, and the warning if all ranks' are equal.

    Args:
        model: of either Keras.
        arguments: of its `fit`, by their names.
    """

    def __init__(self, model: Model, arguments: dict[str, Any]) -> None:
        self._model = model
        self._data = [arguments.get("x"), arguments.get("y")]
        self._asks = sync_monitor.is_asked_for() and model not in _told
        self._logs: object = None
        self._is_same = False  # the data are the same, and the warning is due

    def at_start(self) -> int:
        """Returns a digest of the data in the first call; 0 later, and for data without one."""
        data, self._data = self._data, []
        digest = digest_of(data) if self._asks and data else None
        if digest is not None:  # then the loss is not needed
            self._asks = False
        return digest or _NOTHING

    def seen(self, logs: _Logs) -> _Logs:
        """Keeps the logs of a training step, and returns them."""
        self._logs = logs
        return logs

    def after_epoch(self) -> int:
        """Returns the bits of the first epoch's loss; 0 in later epochs, and without a loss."""
        logs, asks, self._asks = self._logs, self._asks, False
        loss = logs.get("loss") if asks and isinstance(logs, dict) else None
        try:
            value = float(loss) if loss is not None else 0.0
        except (TypeError, ValueError):
            return _NOTHING
        return int(np.float64(value).view(np.int64)) if math.isfinite(value) else _NOTHING

    def look(self, of_ranks: np.ndarray) -> None:
        """Warns on the first rank if all ranks have the same data, once for each model.

        Args:
            of_ranks: the digest of each rank.
        """
        told = len(of_ranks) > 1 and of_ranks[0] != _NOTHING and (of_ranks == of_ranks[0]).all()
        self._is_same |= bool(told)
        if not self._is_same:
            return
        if not (keras_compat.all_built(self._model) or self._logs):
            return  # until a step has built the layers, some of which may be local
        self._is_same = False
        self._asks = False
        _told.add(self._model)
        local = local_keys(self._model, step_of(self._model) or sync_monitor.Step())
        if local or not is_on_first_rank(self._model):
            return
        _logger.warning(
            "fit: all %d ranks train '%s' on the same data, and do the same work %d times. "
            "Write x, y = hvd.shard((x, y)), or dataset = hvd.shard(dataset), before fit, to give "
            "each rank its part. If this is intended, TFHVD_CHECK_SYNC=off looks at no data.",
            len(of_ranks),
            self._model.name,
            len(of_ranks),
        )


def digest_of(data: Any) -> int | None:
    """Returns a digest of 56 bits of some rows of nested arrays; 0 if all rows are equal.

    Returns None if the nest has anything except arrays and tensors.
    """
    digest, tells = hashlib.blake2b(digest_size=7), False
    for leaf in tf.nest.flatten(data):
        if leaf is None:
            continue
        rows = _rows_of(leaf)
        if rows is None:
            return None
        digest.update(repr((tuple(leaf.shape), rows.dtype)).encode())
        digest.update(repr(rows.tolist()).encode() if rows.dtype == object else rows.tobytes())
        tells |= bool((rows != rows[:1]).any())
    return int.from_bytes(digest.digest(), "little") if tells else _NOTHING


def _rows_of(leaf: Any) -> np.ndarray | None:
    """Returns some rows of an array or tensor; None for another object, and without rows."""
    tensor = isinstance(leaf, tf.Tensor) and hasattr(leaf, "numpy")
    if not (tensor or isinstance(leaf, np.ndarray)) or not len(leaf.shape) or not len(leaf):
        return None
    size = math.prod(leaf.shape[1:]) * (leaf.dtype.size or 8 if tensor else leaf.dtype.itemsize)
    count = min(len(leaf), max(2, min(_ROWS, _BYTES // max(size, 1))))
    places = np.linspace(0, len(leaf) - 1, count).astype(np.int64)
    return np.asarray(tf.gather(leaf, places) if tensor else leaf[places])
