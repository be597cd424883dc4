"""The optimizers of tf.compat.v1.train, which reduce in `compute_gradients`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tfhvd.compat.object_proxy import Wrapped, wrap
from tfhvd.gradients.accumulator import GradientAccumulator
from tfhvd.gradients.options import ReductionOptions

if TYPE_CHECKING:
    from tfhvd.compat.types import Gradient, GradientsAndVariables, Variable


def distribute(
    optimizer: tf.compat.v1.train.Optimizer, options: ReductionOptions
) -> tf.compat.v1.train.Optimizer:
    """Returns an optimizer over the same state, whose gradients are reduced as the options say."""
    return wrap(optimizer, Reduces, GradientAccumulator.of(options))


class Reduces(Wrapped):
    """The part of a wrapped tf.compat.v1.train.Optimizer that differs from the plain one."""

    __slots__ = ()
    _tfhvd: GradientAccumulator

    def register_local_var(self, var: Variable) -> None:
        """Excepts a variable from the reduction: its gradient stays this rank's own."""
        self._tfhvd.reduce.local.add(var)

    def compute_gradients(self, *args: Any, **kwargs: Any) -> GradientsAndVariables:
        """Computes the gradients on this rank, with the plain optimizer's arguments; reduces them.

        Returns:
            Pairs of a reduced gradient and its variable, for `apply_gradients`.
        """
        gradients_and_variables = super().compute_gradients(*args, **kwargs)
        variables = [v for _, v in gradients_and_variables]
        reduced = self._tfhvd.add([g for g, _ in gradients_and_variables], variables)
        return list(zip(reduced, variables))

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Gradient, Variable]],
        global_step: tf.Variable | None = None,
        name: str | None = None,
    ) -> tf.Operation | None:
        """Applies what `compute_gradients` has returned.

        Args:
            grads_and_vars: pairs of a gradient and its variable.
            global_step: a variable that is increased by one for each update; None for none.
            name: of the operation.
        """
        grads_and_vars = list(grads_and_vars)
        update = super().apply_gradients
        return self._tfhvd.apply(
            [g for g, _ in grads_and_vars],
            lambda: update(grads_and_vars, global_step=global_step, name=name),
        )
