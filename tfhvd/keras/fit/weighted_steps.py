"""Training steps of Keras models that weight each rank by the divisor of its losses.

An average of gradients weights each rank by one number. If a model has one loss, and it is the mean
over the batch, this number is the count of values in the mean: no further communication is needed.
Three kinds of losses do not fit this number: a loss that is summed; a loss whose divisor depends on
the data (on a mask, or on the sum of sample weights); and each further loss with more values than
samples. On each rank, such a loss is multiplied by the rank's share of the sum of all divisors, and
divided by the rank's share of the sum of all weights. The weighted average of the gradients is then
the gradient of the joined loss, and the weighted mean of the reported losses is the joined loss.
This costs a small collective for each such loss.

If a loss function reduces its values itself, its divisor is unknown. The rank's weight is then the
number of samples in its batch.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import logging
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tfhvd.compat import keras as keras_compat
from tfhvd.compat import private
from tfhvd.compat.losses import Term, surround_losses
from tfhvd.gradients import sample_weights
from tfhvd.job import process
from tfhvd.keras.wrap.hooks import reducer_of
from tfhvd.keras.wrap.model_state import process_set_of, reducing_optimizers, remember_step, step_of
from tfhvd.ops import Average, Sum, allreduce, sync_monitor
from tfhvd.ops.batch_weight import StepOf, current
from tfhvd.ops.names import Identity, name_by_occurrence
from tfhvd.runtime.process_sets import ProcessSet, global_process_set, has_peers

if TYPE_CHECKING:
    from tfhvd.compat.types import Model


class _TrainingStep(StepOf):
    """A step of a Keras model.

    Args:
        samples: of the batch, if they can be counted; None if averages are not weighted.
        process_set: the ranks that train the model.
        seen: the record of what the step does.

    Attributes:
        has_term: whether Keras has reduced a loss in this step.
    """

    def __init__(self, samples: Any, process_set: ProcessSet, seen: sync_monitor.Step) -> None:
        super().__init__(samples)
        self.process_set = process_set
        self.seen = seen
        self.has_term = False
        self._dimensions: int | None = None  # of the counted values; None before the first loss

    def factor_of(self, term: Term) -> tf.Tensor | None:
        """Counts a loss of the step; returns the factor for this loss, None for no factor."""
        self.has_term = True
        dimensions = term.values.shape.rank
        self.seen.reduces_itself |= dimensions == 0
        if dimensions == 0 or not has_peers(self.process_set):
            return None
        plain = term.divides and term.divisor is None
        first = self._dimensions is None
        if first:
            self._dimensions = dimensions if plain else 1
            self.samples = _number_of(term.values) if plain else _rows_of(term.values)
        if plain and (first or dimensions == self._dimensions == 1):
            return None
        weight = tf.cast(self.samples, tf.float64)
        divisor = term.divisor
        if divisor is None and term.divides:
            divisor = tf.cast(_number_of(term.values), tf.float64)
        name = Identity(name_by_occurrence("fit/loss", self.process_set.process_set_id or 0).text)
        with tf.control_dependencies(tf.nest.flatten(term.values, expand_composites=True)):
            # This prevents the collective in a step that finds the data at their end.
            own = tf.stack([weight, tf.ones_like(weight) if divisor is None else divisor])
        with sync_monitor.of_ours():
            both = allreduce(own, op=Sum, name=name, process_set=self.process_set)
        weights, divisors = tf.unstack(both)
        part = 1.0 if divisor is None else tf.math.divide_no_nan(divisor, divisors)
        return tf.stop_gradient(part * tf.math.divide_no_nan(weights, weight))


_logger = logging.getLogger("tfhvd")
_warned: weakref.WeakSet[Model] = weakref.WeakSet()
_in_loss_of: contextvars.ContextVar[_TrainingStep | None] = contextvars.ContextVar(
    "in_loss_of", default=None
)


def _number_of(values: tf.Tensor | tf.RaggedTensor) -> tf.Tensor | int:
    known = None if isinstance(values, tf.RaggedTensor) else values.shape.num_elements()
    return tf.size(values, tf.int32) if known is None else known


def _rows_of(values: tf.Tensor | tf.RaggedTensor) -> tf.Tensor | int:
    if isinstance(values, tf.RaggedTensor):
        return tf.cast(values.nrows(), tf.int32)
    known = None if values.shape.rank is None else values.shape[0]
    return tf.shape(values)[0] if known is None else int(known)


def keep_losses_joined(package: str) -> None:
    """Makes the losses of a Keras' compiled models count like the losses of the joined batch.

    Args:
        package: "keras" or "tf_keras", imported.
    """
    surround_losses(package, _around_loss, _factor_of)


@contextlib.contextmanager
def _around_loss() -> Iterator[None]:
    step = current()
    step = step if isinstance(step, _TrainingStep) else None
    token = _in_loss_of.set(step)
    try:
        yield
    finally:
        _in_loss_of.reset(token)
    if step is not None and not step.has_term:
        step.seen.reduces_itself = True


def _factor_of(term: Term) -> tf.Tensor | None:
    step = _in_loss_of.get()
    return None if step is None else step.factor_of(term)


def batch_that_a_loss_reduces(model: Model, step: sync_monitor.Step, calls: int) -> int:
    """Returns this rank's mean number of samples in a batch, times 1000, if a loss reduces itself.

    Args:
        model: of either Keras.
        step: the record of what the model's steps do.
        calls: the calls of the model's train function in this epoch.

    Returns:
        0 if Keras reduces all losses.
    """
    samples = keras_compat.samples_seen(model) if step.reduces_itself and calls else None
    return int(1000 * (samples or 0) / max(calls, 1))


def warn_of_unequal(model: Model, batches: Iterable[int], ranks: Sequence[int]) -> None:
    """Warns of unequal batches if a loss reduces itself; on the first rank, once for each model.

    Args:
        model: of either Keras.
        batches: the result of `batch_that_a_loss_reduces` of each rank.
        ranks: the numbers of these ranks.
    """
    of_ranks = {rank: batch / 1000 for rank, batch in zip(ranks, batches) if batch}
    if len(set(of_ranks.values())) < 2 or min(ranks) != process.rank() or model in _warned:
        return
    _warned.add(model)
    _logger.warning(
        "fit: a loss of '%s' gives one number for a batch, and ranks have batches of different "
        "sizes: %s samples on ranks %s. tfhvd takes that number for a mean over the samples. If it "
        "is another one, let the loss return a value for each sample, which Keras then averages, "
        "or write a train_step with `with hvd.batch_weight(number)` around tape.gradient and "
        "optimizer.apply_gradients.",
        model.name,
        ", ".join(f"{batch:.4g}" for batch in of_ranks.values()),
        list(of_ranks),
    )


@contextlib.contextmanager
def weighted_steps(model: Model, seen: sync_monitor.Step) -> Iterator[None]:
    """Makes the training steps of a model weighted steps, which record what they do.

    Args:
        model: of either Keras.
        seen: the record.
    """
    attributes = vars(model)
    if step_of(model) is None:
        model.train_function = None  # it was made for a step that is not weighted
    own_step = model.train_step
    # This bypasses Keras' __setattr__; the user may have put a train_step there already.
    replaced = attributes.get("train_step")
    attributes["train_step"] = _weighted_step(model, own_step, seen)
    try:
        yield
    finally:
        if replaced is None:
            del attributes["train_step"]
        else:
            attributes["train_step"] = replaced
        if step_of(model) is None and getattr(model, "train_function", None) is not None:
            remember_step(model.train_function, seen)


def _weighted_step(
    model: Model, train_step: Callable[..., Any], seen: sync_monitor.Step
) -> Callable[..., Any]:
    @functools.wraps(train_step)
    def step(data: Any) -> Any:
        reducers = [reducer_of(optimizer) for optimizer in reducing_optimizers(model)]
        averages = not reducers or any(r.options.op == Average for r in reducers)
        samples = sample_weights.count(data) if averages else None
        ranks = process_set_of(model) or global_process_set
        with _TrainingStep(samples, ranks, seen), sync_monitor.watched(seen):
            return train_step(data)

    return private.remember_original(step, train_step)
