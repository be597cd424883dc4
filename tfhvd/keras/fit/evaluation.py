"""`evaluate` of a model: all ranks return the metrics that MetricAverageCallback has joined."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from tfhvd.compat import keras as keras_compat
from tfhvd.compat import metrics as metrics_compat
from tfhvd.keras.callbacks.lists import ours
from tfhvd.keras.callbacks.metric_average import MetricAverageCallback
from tfhvd.keras.joining import completed_fits

if TYPE_CHECKING:
    from tfhvd.compat.types import Instead, Model


@contextlib.contextmanager
def around_evaluate(model: Model, arguments: dict[str, Any]) -> Iterator[Instead | None]:
    """Surrounds `evaluate`: returns the joined metrics, as callbacks may change a copy only."""
    given = arguments.get("callbacks")
    joins = [c for c in ours(given) if isinstance(c, MetricAverageCallback)]
    with completed_fits.around_evaluate(model, arguments) as instead:
        if not joins or keras_compat.is_callback_list(given):
            yield instead
            return

        def joined(run: Callable[[], Any]) -> Any:
            result, found = run(), joins[-1].evaluated
            if found is None or arguments.get("return_dict"):
                return result if found is None else found
            return metrics_compat.flattened(model, found)

        yield joined if instead is None else lambda run: instead(lambda: joined(run))
