"""How many samples this rank has in the training step under way: what averages weigh it by."""

from __future__ import annotations

import contextvars
from types import TracebackType
from typing import Any, Union

import tensorflow as tf

from tfhvd.compat.variables import state_variable

_Samples = Union[int, tf.Tensor, None]  # a number, where it is known

_samples: contextvars.ContextVar[_Samples] = contextvars.ContextVar("samples", default=None)


class StepOf:
    """While it is entered, gradients are averaged by samples.

    Args:
        samples: this rank's: a number, or an int32 tensor without dimensions; None leaves the ranks
            to count alike, those that have joined included.

    Example:
        >>> with StepOf(32):
        ...     gradients = reduce(gradients, variables)
    """

    def __init__(self, samples: _Samples) -> None:
        self._given = samples
        self._token: contextvars.Token[_Samples] | None = None

    def __enter__(self) -> None:
        self._token = _samples.set(self._given)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._token is not None
        _samples.reset(self._token)


def alike() -> StepOf:
    """Makes the ranks that are there count alike, where they would by their samples."""
    return StepOf(None if _samples.get() is None else 1)


class OfSeveralSteps:
    """Weighs steps whose gradients are added up to one update, so that every sample counts once.

    The gradient of each step is multiplied by what `add` returns, and the sum by `rest`. Where all
    steps have as many samples both are 1.

    Example:
        >>> total += gradient * weights.add(is_first=True)
        >>> total += gradient * weights.add(is_first=False)
        >>> with weights.step():
        ...     gradients = reduce([total * weights.rest(2)], variables)
    """

    def __init__(self) -> None:
        self._counts: tf.Variable | None = None  # samples of the first step, and of all

    def add(self, is_first: tf.Tensor) -> tf.Tensor:
        """Takes the samples of the step under way; returns how many the first step has of them.

        Args:
            is_first: whether an update begins with it, a bool tensor without dimensions.
        """
        here, counts = current(), self.state()
        assert here is not None
        before = counts.read_value()
        first = tf.where(is_first, tf.maximum(here, 1), before[0])
        total = tf.where(is_first, here, before[1] + here)
        counts.assign([first, total])
        return tf.cast(here / first, tf.float32)

    def rest(self, steps: int) -> tf.Tensor:
        """Returns what the sum is multiplied by to be `steps` times the mean over all samples."""
        first, total = tf.unstack(tf.cast(self.state().read_value(), tf.float64))
        return tf.cast(tf.math.divide_no_nan(steps * first, total), tf.float32)

    def step(self) -> StepOf:
        """Makes this rank count by the samples of all the steps."""
        return StepOf(self.state().read_value()[1])

    def state(self) -> tf.Variable:
        """Returns where they are counted."""
        if self._counts is None:
            self._counts = state_variable([1, 0], tf.int32, "samples")
        return self._counts


def current() -> tf.Tensor | None:
    """Returns the samples of the step under way, an int32 tensor; None outside of one."""
    samples = _samples.get()
    return None if samples is None else tf.cast(samples, tf.int32)


def count(data: Any) -> _Samples:
    """Returns the samples in what a Keras model is trained with; None where it does not say.

    Args:
        data: inputs, or a tuple of inputs, targets and more; nested as the model takes them.
    """
    inputs = data[0] if isinstance(data, (tuple, list)) and len(data) > 0 else data
    for tensor in tf.nest.flatten(inputs):
        if tensor is None:
            continue
        if isinstance(tensor, tf.RaggedTensor):
            return tf.cast(tensor.nrows(), tf.int32)
        if isinstance(tensor, tf.SparseTensor):
            return tf.cast(tensor.dense_shape[0], tf.int32)
        # A number where it is known, which also a branch of a compiled function takes.
        shape = tf.TensorShape(tensor.shape) if hasattr(tensor, "shape") else tf.TensorShape([])
        if shape.rank == 0:
            return None
        return tf.shape(tensor)[0] if shape.rank is None or shape[0] is None else int(shape[0])
    return None
