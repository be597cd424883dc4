"""How much this rank's batch counts in the averages of the step in progress."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Union

import tensorflow as tf

from tfhvd.ops import compiled
from tfhvd.ops.allreduce import allreduce
from tfhvd.ops.names import Identity, name_by_occurrence
from tfhvd.ops.reduce_op import Sum
from tfhvd.runtime.process_sets import ProcessSet, global_process_set, has_peers

if TYPE_CHECKING:
    from tfhvd.compat.types import TensorLike

Samples = Union[int, tf.Tensor, None]  # a number, if it is known

_step: contextvars.ContextVar[StepOf | None] = contextvars.ContextVar("step", default=None)


class StepOf:
    """While it is entered, gradients are averaged by samples.

    Args:
        samples: this rank's: a number, or an int32 tensor without dimensions; None leaves the ranks
            to count alike, those that have joined included.
        factor: what this rank's gradients are multiplied by before the average, a tensor without
            dimensions; None for 1.

    Attributes:
        samples: as given; what is asked later may know better.

    Example:
        >>> with StepOf(32):
        ...     gradients = reduce(gradients, variables)
    """

    def __init__(self, samples: Samples, factor: tf.Tensor | None = None) -> None:
        self.samples = samples
        self.factor = factor
        self._token: contextvars.Token[StepOf | None] | None = None

    def __enter__(self) -> None:
        self._token = _step.set(self)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._token is not None
        _step.reset(self._token)


def current() -> StepOf | None:
    """Returns the step in progress; None outside of one, and if ranks count alike in it."""
    step = _step.get()
    return None if step is None or step.samples is None else step


def weight_of(step: StepOf, dtype: tf.DType) -> tf.Tensor:
    """Returns how much this rank counts in a step, in proportion to the others.

    Args:
        step: a `current` one.
        dtype: a type of floating-point numbers.
    """
    weight = tf.cast(step.samples, dtype)
    return weight if step.factor is None else weight * tf.cast(step.factor, dtype)


@contextlib.contextmanager
def batch_weight(
    number: TensorLike, process_set: ProcessSet = global_process_set
) -> Iterator[None]:
    """Makes the averages of gradients inside count this rank by what its loss is divided by.

    For your own loops on unequal batches: `fit` and `train_on_batch` find the number by themselves.
    With it, the average is the gradient of the joined batch, also below synchronized batch
    normalization and for local variables. All ranks that train must give a number in the same
    steps. It has no part in sums.

    Whole numbers travel with the gradients. For a tensor of floating-point numbers, and in a
    function with jit_compile=True for any tensor, the ranks add the numbers up by a small
    collective; such numbers do not go with `backward_passes_per_step`.

    Args:
        number: what the loss divides by on this rank, 0 or above, without dimensions: samples,
            tokens that are not masked, the sum of sample weights.
        process_set: the ranks that train together.

    Returns:
        A context.

    Raises:
        NotInitializedError: before `init`.
        ValueError: for what has dimensions, and numbers below 0.

    Example:
        >>> with tf.GradientTape() as tape:
        ...     loss = tf.reduce_sum(losses * mask) / tf.reduce_sum(mask)
        >>> with hvd.batch_weight(tf.reduce_sum(mask)):
        ...     tape = hvd.DistributedGradientTape(tape)
        ...     gradients = tape.gradient(loss, model.trainable_variables)
    """
    tensor = tf.convert_to_tensor(number)
    known = tf.get_static_value(tensor)
    if tensor.shape.rank not in (0, None) or (known is not None and not known >= 0):
        raise ValueError(
            f"batch_weight on rank {process_set.rank()}. Received: {number!r}. Expected: one "
            "number, 0 or above: what the loss of this rank's batch is divided by."
        )
    if not has_peers(process_set):
        yield
    elif tensor.dtype.is_integer and (known is not None or not compiled.is_compiled()):
        with StepOf(tf.cast(tensor, tf.int32) if known is None else int(known)):
            yield
    else:
        name = Identity(name_by_occurrence("batch_weight", process_set.process_set_id or 0).text)
        own = tf.cast(tensor, tf.float64)
        both = tf.stack([own, tf.ones_like(own)])
        total, ranks = tf.unstack(allreduce(both, op=Sum, name=name, process_set=process_set))
        with StepOf(1, factor=tf.math.divide_no_nan(own * ranks, total)):
            yield
