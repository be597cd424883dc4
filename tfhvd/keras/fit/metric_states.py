"""The metrics of a model over all ranks: from the sum of the ranks' states, or a mean of results.

A metric of Keras keeps sums over its samples. The sum of all ranks' states therefore gives the
result that one rank would find in the samples of all. The mean of the ranks' results equals this
result only if the metric is a mean, and not for AUC, precision, F1, IoU or R2.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tfhvd.compat import keras as keras_compat
from tfhvd.compat import metrics as metrics_compat
from tfhvd.ops import allgather, allgather_object
from tfhvd.runtime.process_sets import ProcessSet

if TYPE_CHECKING:
    from tfhvd.compat.types import Metric, Model

VALIDATION = "val_"  # the prefix of the keys of validation's results

_Layout = list[list[Any]]  # for each metric its name, and the type and shape of each variable


class States:
    """A copy of the state of a model's metrics, after training or after validation.

    Args:
        model: of either Keras.
        sums: the names of further metrics whose states add up.

    Attributes:
        layout: the names, types and shapes of the states, which ranks compare.
        values: the values of the states, in the order of the layout.
        results: the results of the metrics whose states add up, by their names in `fit`'s logs.
        samples: the number of samples so far; None if unknown.
        others: for each result of another metric, the name of the metric's class.
    """

    def __init__(self, model: Model, sums: Collection[str]) -> None:
        self._model = model
        self._metrics: list[Metric] = []
        self.results = {k: _array(v) for k, v in metrics_compat.results_of(model).items()}
        self.others: dict[str, str] = {}
        for metric in metrics_compat.metrics_of(model):
            if metric.name in sums or metrics_compat.adds_up(metric):
                self._metrics.append(metric)
                continue
            for key in metrics_compat.keys_of(model, metric):
                self.others[key] = type(metric).__name__
                self.results.pop(key, None)
        variables = self._variables()
        self.values = [variable.numpy() for variable in variables]
        self.layout: _Layout = [
            [m.name, *([v.dtype.name, *v.shape] for v in metrics_compat.states_of(m))]
            for m in self._metrics
        ]
        self.samples = keras_compat.samples_seen(model)

    def _variables(self) -> list[tf.Variable]:
        return [v for metric in self._metrics for v in metrics_compat.states_of(metric)]

    def results_of(self, states: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """Returns the results of the metrics for other states; keeps the metrics' own states."""
        variables = self._variables()
        before = [variable.numpy() for variable in variables]
        try:
            _assign(variables, states)
            found = metrics_compat.results_of(self._model)
            return {key: _array(found[key]) for key in self.results}
        finally:
            _assign(variables, before)


def _assign(variables: Iterable[tf.Variable], values: Iterable[np.ndarray]) -> None:
    for variable, value in zip(variables, values):
        variable.assign(value)


@dataclasses.dataclass(frozen=True)
class _Value:
    """One entry of the logs of one rank.

    Attributes:
        value: a number, or an array.
        samples: the number of samples of the value; None if unknown.
        adds_up: whether the value is the result of a metric whose state adds up.
        of: the class of the metric, "" without a metric.
    """

    value: np.ndarray
    samples: float | None
    adds_up: bool
    of: str


@dataclasses.dataclass(frozen=True)
class _Told:
    """The logs and states of one rank, as the rank sends them.

    Attributes:
        values: the entries of the logs, by key.
        layouts: the layouts of the states: of training, under "", and of validation.
        states: the values of the states: of training, under "", and of validation.
    """

    values: dict[str, _Value]
    layouts: dict[str, _Layout]
    states: dict[str, list[np.ndarray]]


@dataclasses.dataclass(frozen=True)
class Joined:
    """The joined logs of all ranks.

    Attributes:
        logs: the joined results.
        averaged: the entries that are means of unequal results: for each key the class of the
            metric, "" without a metric.
        having: the entries that some ranks lack: for each key the ranks that have it.
    """

    logs: dict[str, Any]
    averaged: dict[str, str]
    having: dict[str, tuple[int, ...]]


def join(
    logs: Mapping[str, Any], of_phases: Mapping[str, States], ranks: ProcessSet, device: str
) -> Joined:
    """Joins the logs of all ranks, in one collective, or two if a rank has no metrics yet.

    Args:
        logs: of this rank, with its own results.
        of_phases: this rank's states after training, under "", and after validation, if any.
        ranks: the ranks that call this function.
        device: the device on which the logs are gathered.
    """
    own = {key: _value(key, value, of_phases) for key, value in logs.items() if _is_number(value)}
    with tf.device(device or None):
        sent = _pack(own, of_phases)
        told = _unpack(allgather(sent, name="MetricAverageCallback", process_set=ranks).numpy())
    summed: dict[str, np.ndarray] = {}
    missing = False
    for phase in ("", VALIDATION):
        keys = {key for key in _keys(told) if _phase_of(key) == phase and _adds_up(key, told)}
        common = _common_layout(phase, keys, told)
        if common is None:
            continue
        states = of_phases.get(phase) or of_phases.get("")
        missing |= any(rank.layouts.get(phase, rank.layouts.get("")) != common for rank in told)
        if states is not None and states.layout == common:
            results = states.results_of(_sums(phase, common, told))
            summed.update({k: results[k.removeprefix(phase)] for k in keys})
    if missing:
        of_ranks = allgather_object(summed, name="MetricAverageCallback/of", process_set=ranks)
        summed = {key: value for rank in reversed(of_ranks) for key, value in rank.items()}
    return _joined(told, summed)


def _joined(told: list[_Told], summed: Mapping[str, np.ndarray]) -> Joined:
    joined: dict[str, Any] = {}
    averaged: dict[str, str] = {}
    having: dict[str, tuple[int, ...]] = {}
    for key in _keys(told):
        values = [rank.values[key] for rank in told if key in rank.values]
        if len(values) < len(told):
            having[key] = tuple(n for n, rank in enumerate(told) if key in rank.values)
        if key in summed:
            result = summed[key]
        elif len({value.value.shape for value in values}) > 1:
            continue
        else:
            result = _average(values)
            if any(not np.array_equal(v.value, result, equal_nan=True) for v in values):
                averaged[key] = values[0].of
        joined[key] = result if result.ndim else float(result)
    return Joined(joined, averaged, having)


def _array(value: Any) -> np.ndarray:
    # NumPy cannot convert a bfloat16 tensor to an array.
    return np.asarray(value.numpy() if tf.is_tensor(value) else value)


def _is_number(value: object) -> bool:
    """Whether `value` is a number, or an array or tensor of numbers."""
    try:
        array = _array(value)
    except (TypeError, ValueError):
        return False
    is_array = array.ndim == 0 or isinstance(value, (np.ndarray, tf.Tensor))
    return is_array and (array.dtype.kind in "fiub" or tf.as_dtype(array.dtype).is_floating)


def _phase_of(key: str) -> str:
    return VALIDATION if key.startswith(VALIDATION) else ""


def _value(key: str, value: Any, of_phases: Mapping[str, States]) -> _Value:
    array = _array(value).astype(np.float64)
    states = of_phases.get(_phase_of(key))
    if states is None:
        return _Value(array, None, adds_up=False, of="")
    key = key.removeprefix(_phase_of(key))
    result = states.results.get(key)
    # A user's `train_step` may return another value under the metric's name.
    same = (
        result is not None
        and result.shape == array.shape
        and np.allclose(result.astype(np.float64), array, 1e-4, 1e-6, equal_nan=True)
    )
    return _Value(array, states.samples, same, states.others.get(key, ""))


def _keys(told: Iterable[_Told]) -> list[str]:
    return list(dict.fromkeys(key for rank in told for key in rank.values))


def _adds_up(key: str, told: Iterable[_Told]) -> bool:
    """Whether the sum of states gives an entry; if only one rank has the entry, it needs no sum."""
    values = [rank.values[key] for rank in told if key in rank.values]
    return len(values) > 1 and all(value.adds_up for value in values)


def _common_layout(phase: str, keys: set[str], told: Iterable[_Told]) -> _Layout | None:
    """Returns the layout that is common to the ranks with some of `keys`; None if theirs differ."""
    layouts = [rank.layouts[phase] for rank in told if not keys.isdisjoint(rank.values)]
    return layouts[0] if layouts and all(layout == layouts[0] for layout in layouts) else None


def _sums(phase: str, layout: _Layout, told: Iterable[_Told]) -> list[np.ndarray]:
    of_ranks = [rank.states[phase] for rank in told if rank.layouts.get(phase) == layout]
    sums = []
    for values in zip(*of_ranks):
        wide = np.int64 if values[0].dtype.kind in "iu" else np.float64
        sums.append(np.sum([value.astype(wide) for value in values], 0).astype(values[0].dtype))
    return sums


def _average(values: Sequence[_Value]) -> np.ndarray:
    """Returns the mean of the values, weighted by samples if all ranks know their number."""
    samples = [value.samples for value in values]
    known = [n for n in samples if n is not None]
    if len(known) < len(samples) or sum(known) <= 0:
        return np.mean([value.value for value in values], 0)
    # The value of a rank without samples has no meaning, and may be NaN.
    counted = [(value.value, n) for value, n in zip(values, known) if n > 0]
    return np.average([v for v, _ in counted], 0, [n for _, n in counted])


def _pack(values: Mapping[str, _Value], of_phases: Mapping[str, States]) -> tf.Tensor:
    """Returns a line of JSON followed by the bytes of the states."""
    own = {key: dataclasses.astuple(value) for key, value in values.items()}
    layouts = {phase: states.layout for phase, states in of_phases.items()}
    data = b"".join(v.tobytes() for states in of_phases.values() for v in states.values)
    head = json.dumps([own, layouts], default=np.ndarray.tolist).encode()
    return tf.constant(np.frombuffer(head + b"\n" + data, np.uint8))


def _unpack(gathered: np.ndarray) -> list[_Told]:
    data, begin, told = gathered.tobytes(), 0, []
    while begin < len(data):
        end = data.index(b"\n", begin)
        values, layouts = json.loads(data[begin:end])
        begin = end + 1
        of_phases: dict[str, list[np.ndarray]] = {}
        for phase, layout in layouts.items():
            states = of_phases[phase] = []
            for dtype, *shape in (variable for _, *variables in layout for variable in variables):
                kind, count = tf.as_dtype(dtype).as_numpy_dtype, int(np.prod(shape))
                state = np.frombuffer(data, kind, count, begin)
                states.append(state.reshape(shape))
                begin += state.nbytes
        found = {k: _Value(np.asarray(v, np.float64), *rest) for k, (v, *rest) in values.items()}
        told.append(_Told(found, layouts, of_phases))
    return told
