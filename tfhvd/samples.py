"""How many samples this rank has in the training step under way: what averages weigh it by."""

from __future__ import annotations

import contextvars
from types import TracebackType
from typing import Any

import tensorflow as tf

_samples: contextvars.ContextVar[Any] = contextvars.ContextVar("samples", default=None)


class StepOf:
    """While it is entered, gradients are averaged by samples.

    Args:
        samples: this rank's: a number, or an int32 tensor without dimensions; None leaves the ranks
            to count alike, those that have joined included.

    Example:
        >>> with StepOf(32):
        ...     gradients = reduce(gradients, variables)
    """

    def __init__(self, samples: Any) -> None:
        self._given = samples
        self._token: Any = None

    def __enter__(self) -> None:
        self._token = _samples.set(self._given)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _samples.reset(self._token)


def alike() -> StepOf:
    """Makes the ranks that are there count alike, where they would by their samples."""
    return StepOf(None if _samples.get() is None else 1)


def current() -> tf.Tensor | None:
    """Returns the samples of the step under way, an int32 tensor; None outside of one."""
    samples = _samples.get()
    return None if samples is None else tf.cast(samples, tf.int32)


def count(data: Any) -> Any:
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
