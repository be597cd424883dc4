"""How many samples this rank has in the training step in progress: what averages weigh it by."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tfhvd.compat.variables import state_variable
from tfhvd.gradients.gradient import after_all
from tfhvd.ops.batch_weight import Samples, StepOf
from tfhvd.ops.batch_weight import current as current_step

if TYPE_CHECKING:
    from tfhvd.compat.types import Gradient


def alike() -> StepOf:
    """Makes the present ranks count alike, if they would count by their samples."""
    return StepOf(None if current() is None else 1)


class OfSeveralSteps:
    """Weighs steps whose gradients are added up to one update, so that every sample counts once.

    The gradient of each step is multiplied by what `add` returns, and the sum by `rest`. Where all
    steps have as many samples both are 1.

    Example:
        >>> total += gradient * weights.add([gradient], is_first=True)
        >>> total += gradient * weights.add([gradient], is_first=False)
        >>> with weights.step():
        ...     gradients = reduce([total * weights.rest(2)], variables)
    """

    def __init__(self) -> None:
        self._counts: tf.Variable | None = None  # samples of the first step, and of all

    def add(self, gradients: Iterable[Gradient], is_first: tf.Tensor) -> tf.Tensor:
        """Takes the samples of the step in progress; returns how many the first step has of them.

        Args:
            gradients: the step's. A step of a function that finds the end of the data has none.
            is_first: whether an update begins with it, a bool tensor without dimensions.
        """
        here, counts = current(), self.state()
        assert here is not None
        before = counts.read_value()
        first = tf.where(is_first, tf.maximum(here, 1), before[0])
        total = tf.where(is_first, here, before[1] + here)
        with after_all(gradients):
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
        """Returns the variable that counts them."""
        if self._counts is None:
            self._counts = state_variable([1, 0], tf.int32, "samples")
        return self._counts


def current() -> tf.Tensor | None:
    """Returns the samples of the step in progress, an int32 tensor; None outside of one."""
    step = current_step()
    if step is not None and step.factor is not None:
        raise ValueError(
            "Gradients of several passes are weighed by whole numbers. Received: "
            "hvd.batch_weight of a tensor of floating-point numbers, or in a function with "
            "jit_compile=True. Expected: hvd.batch_weight of an integer, or "
            "backward_passes_per_step=1."
        )
    return None if step is None else tf.cast(step.samples, tf.int32)


def count(data: Any) -> Samples:
    """Returns the samples in what a Keras model is trained with; None if it does not say.

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
        # A number if it is known, which also a branch of a compiled function takes.
        shape = tf.TensorShape(tensor.shape) if hasattr(tensor, "shape") else tf.TensorShape([])
        if shape.rank == 0:
            return None
        return tf.shape(tensor)[0] if shape.rank is None or shape[0] is None else int(shape[0])
    return None
