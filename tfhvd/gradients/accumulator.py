"""Accumulating gradients over several calls: what `backward_passes_per_step` does.

A wrapped optimizer is called in two steps, `add` (at the time of its reduction of gradients) and
`apply` (at the time of its update of variables). Of `passes` calls all but the last only add up
this rank's gradients; the last one reduces the sums, and updates. If ranks are averaged by their
samples, so are the calls.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from tfhvd.compat.variables import key_of, state_variable, tf_variable
from tfhvd.gradients import sample_weights
from tfhvd.gradients.awaited import Awaited
from tfhvd.gradients.gradient import scaled
from tfhvd.gradients.options import ReductionOptions
from tfhvd.gradients.reducer import GradientReducer
from tfhvd.ops import sync_monitor

if TYPE_CHECKING:
    from tfhvd.compat.types import Gradient, Variable


_of_this_process: weakref.WeakSet[GradientAccumulator] = weakref.WeakSet()


def begin_anew() -> None:
    """Drops what this process has added up, for ranks that have made different numbers of calls."""
    for accumulator in list(_of_this_process):
        accumulator.begin_anew()


class GradientAccumulator:
    """What a wrapped optimizer does with gradients: reduces them on every `passes`-th call.

    The sums are dense (also of IndexedSlices), begin at zero in each process, and are in no
    checkpoint: a job that is started again begins with a whole number of passes.

    Args:
        reduce: reduces the gradients, or their sums.
        passes: how many calls make an update, 1 or more; with 1, every call reduces and updates.
        average: whether sums are divided by `passes`.

    Attributes:
        is_asked: whether the optimizer has ever asked for a reduction of its gradients.
        awaited: the variables of an update, if they are known before their gradients come here.
    """

    def __init__(self, reduce: GradientReducer, passes: int = 1, average: bool = False) -> None:
        self.reduce = reduce
        self.is_asked = False
        self.awaited = Awaited()
        self._passes = passes
        self._factor = 1.0 / passes if average else 1.0
        self._count: tf.Variable | None = None
        self._samples = sample_weights.OfSeveralSteps()
        self._sums: dict[int, tuple[Variable, tf.Variable]] = {}
        _of_this_process.add(self)

    @classmethod
    def of(cls, options: ReductionOptions) -> GradientAccumulator:
        """Returns one that reduces, and how often, as the options say."""
        passes, average = options.backward_passes_per_step, options.average_aggregated_gradients
        return cls(GradientReducer(options), passes, average)

    @property
    def accumulates(self) -> bool:
        """Whether some calls do not update."""
        return self._passes > 1

    def add(self, gradients: Iterable[Gradient], variables: Iterable[Variable]) -> list[Gradient]:
        """Takes the gradients of one call.

        Args:
            gradients: tensors, IndexedSlices or None; the same of them are None on every rank.
            variables: what they belong to.

        Returns:
            As many: on the last call the reduced sums, before it zeros that mean nothing.
        """
        gradients, variables = list(gradients), list(variables)
        if not self.accumulates:
            return self.reduce(gradients, variables)
        sync_monitor.note_reduced(variables)  # in the last call
        weighted = self.reduce.weighs_steps()
        sums = [self._sum_of(g, v) for g, v in zip(gradients, variables)]
        with tf.control_dependencies(_operations([self._drop_what_was_left_out()])):
            if weighted:
                is_first = tf.equal(self._counter().read_value(), 0)
                part = self._samples.add(gradients, is_first)
                gradients = [scaled(g, part) for g in gradients]
            added = [_add(s, g) for s, g in zip(sums, gradients) if g is not None]
        with tf.control_dependencies(_operations(added)):
            last = self._is_last(self._counter().assign_add(1, read_value=True))
        there = [i for i, s in enumerate(sums) if s is not None]

        def reduced() -> list[tf.Tensor]:
            factor = self._factor * (self._samples.rest(self._passes) if weighted else 1.0)
            values = [None if s is None else scaled(s.read_value(), factor) for s in sums]
            with self._samples.step() if weighted else sample_weights.alike():
                done = self.reduce(values, variables)
            return [done[i] for i in there]

        result: list[Gradient] = [None] * len(gradients)
        if there:
            values = tf.cond(last, reduced, lambda: [tf.zeros_like(sums[i]) for i in there])
            for i, value in zip(there, values):
                result[i] = value
        return result

    def apply(
        self, gradients: Iterable[Gradient], update: Callable[[], tf.Operation | None]
    ) -> tf.Operation | None:
        """Updates, if this is the last call.

        Args:
            gradients: what `add` returned, or what has become of it since.
            update: applies the gradients; may return an operation.

        Returns:
            What `update` returns with one pass; else an operation in a graph, and None otherwise.
        """
        if not self.accumulates:
            return update()
        given = [g.values if isinstance(g, tf.IndexedSlices) else g for g in gradients]
        with tf.control_dependencies(_operations(given)):
            last = self._is_last(self._counter().read_value())

        def now() -> tf.Tensor:
            with tf.control_dependencies(_operations([update()])):
                return self._reset()

        updated = tf.cond(last, now, lambda: tf.constant(False))
        return None if tf.executing_eagerly() else tf.group(updated)

    def _drop_what_was_left_out(self) -> tf.Tensor:
        """Begins a new update if `apply` was not called for the last one: by a loss scale."""
        complete = self._is_last(self._counter().read_value())
        return tf.cond(complete, self._reset, lambda: tf.constant(False))

    def _reset(self) -> tf.Tensor:
        reset = [s.assign(tf.zeros_like(s), read_value=False) for _, s in self._all_sums()]
        reset.append(self._counter().assign(0, read_value=False))
        with tf.control_dependencies(_operations(reset)):
            return tf.constant(True)

    def begin_anew(self) -> None:
        """Drops what it has added up."""
        if self._count is not None:
            self._reset()

    @property
    def shared_state(self) -> list[tf.Variable]:
        """The state that ranks take over with an optimizer's own."""
        return []

    def _is_last(self, count: tf.Tensor) -> tf.Tensor:
        return tf.equal(count, self._passes)

    def _counter(self) -> tf.Variable:
        if self._count is None:
            self._count = state_variable(0, tf.int32, "passes")
        return self._count

    def _sum_of(self, gradient: Gradient, variable: Variable) -> tf.Variable | None:
        """Returns the sum of a variable's gradients; None if there never was a gradient."""
        key = key_of(variable)
        if key not in self._sums:
            if gradient is None:
                return None
            zeros = np.zeros(tf_variable(variable).shape, gradient.dtype.as_numpy_dtype)
            total = state_variable(zeros, gradient.dtype, "accumulated")
            self._sums[key] = (variable, total)  # The variable is held: see LocalVariables.
        return self._sums[key][1]

    def _all_sums(self) -> list[tuple[Variable, tf.Variable]]:
        return list(self._sums.values())


def _add(total: tf.Variable, gradient: Gradient) -> tf.Operation:
    if isinstance(gradient, tf.IndexedSlices):
        return total.scatter_add(gradient)
    return total.assign_add(gradient, read_value=False)


def _operations(
    things: Iterable[tf.Operation | tf.Tensor | None],
) -> list[tf.Operation | tf.Tensor]:
    """What others of a graph can be made to wait for; nothing if everything runs at once."""
    return [] if tf.executing_eagerly() else [thing for thing in things if thing is not None]
