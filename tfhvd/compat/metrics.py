"""Metrics of models of either Keras: their states, and the names of their results.

A part of keras.py, under the same rule: every function here names the versions that need it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfhvd.compat import keras as keras_compat
from tfhvd.compat import private
from tfhvd.compat.variables import tf_variable

if TYPE_CHECKING:
    import tensorflow as tf

    from tfhvd.compat.types import Metric, Model


def metrics_of(model: Model) -> list[Metric]:
    """Lists the single metrics of a model.

    Keras 3 puts the metrics of `compile` into one metric, which is empty before the first batch.
    """
    found: list[Metric] = []
    is_keras_3 = keras_compat.keras_package(model) == keras_compat.KERAS_3
    for metric in model.metrics:
        inner = getattr(metric, "metrics", None) if is_keras_3 else None
        found += [metric] if inner is None else inner
    return found


def states_of(metric: Metric) -> list[tf.Variable]:
    """Lists the variables with the state of a metric."""
    return [tf_variable(variable) for variable in metric.variables]


def adds_up(metric: Metric) -> bool:
    """Returns whether the state of a metric is a sum over samples, as far as its class tells.

    This is true for all metrics of Keras (3.5 to 3.15, tf_keras 2.16 to 2.21), whose states are
    sums, counts and confusion matrices. It is also true for a subclass of Keras' mean that adds no
    variables.
    """
    owner = next(cls for cls in type(metric).__mro__ if "update_state" in vars(cls))
    if owner.__module__.partition(".")[0] in (keras_compat.KERAS_3, keras_compat.TF_KERAS):
        return True
    mean = keras_compat.keras_of(metric).metrics.Mean
    return isinstance(metric, mean) and len(metric.variables) == 2


def results_of(model: Model) -> dict[str, Any]:
    """Returns a model's results by their names in `fit`; none before the first batch."""
    try:
        return dict(model.get_metrics_result())
    except ValueError:  # of Keras 3
        return {}


def keys_of(model: Model, metric: Metric) -> set[str]:
    """Returns the names in `fit` of the results of one metric; Keras makes the names unique."""
    mark, attributes = object(), vars(metric)
    own = attributes.get("result")  # tf_keras stores this method in the object
    if isinstance(metric.result(), dict):
        return set(metric.result())
    attributes["result"] = lambda: mark
    try:
        return {key for key, value in results_of(model).items() if value is mark}
    finally:
        if own is None:
            del attributes["result"]
        else:
            attributes["result"] = own


def flattened(model: Model, logs: dict[str, Any]) -> Any:
    """Returns results in the form in which `evaluate` returns them without `return_dict`."""
    use = "return what all ranks have evaluated"
    if keras_compat.keras_package(model) == keras_compat.KERAS_3:
        return private.attribute(model, "_flatten_metrics_in_order", use)(logs)
    flatten = private.of_module("tf_keras.src.engine.training", "flatten_metrics_in_order", use)
    return flatten(logs, model.metrics_names)
