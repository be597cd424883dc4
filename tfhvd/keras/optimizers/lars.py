"""LARS: SGD with a separate learning rate for each layer, for large batches."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import keras
from keras import ops

from tfhvd.compat import private

if TYPE_CHECKING:
    from tfhvd.compat.types import Variable

_BIASES_AND_NORMALIZATION = (r"(^|/)(bias|gamma|beta|scale)$",)


@keras.saving.register_keras_serializable(package="tfhvd")
class LARS(keras.optimizers.SGD):
    """Layer-wise adaptive rate scaling (You et al., 2017), for Keras 3.

    LARS is SGD with the length of a step in proportion to the weights. For each variable w:

        rate = trust_coefficient * |w| / (|gradient| + weight_decay * |w| + epsilon)
        velocity = momentum * velocity - learning_rate * rate * (gradient + weight_decay * w)
        w = w + velocity

    With batches of thousands of samples, SGD needs learning rates that are too large for layers
    with large gradients and small weights. LARS takes shorter steps for these layers. For variables
    that `exclude` matches it is plain SGD without weight decay. For a variable whose weights or
    gradient are zero the rate is 1. Use LARS with a warm-up. The counterpart of Adam is `Lamb` of
    Keras.

    Args:
        learning_rate: a number, or a schedule; about 1 to 30, because it is multiplied by the trust
            coefficient.
        momentum: from 0 to 1.
        weight_decay: the factor of the weights that is added to the gradient.
        trust_coefficient: the length of a step in relation to the length of the weights.
        epsilon: keeps the division finite.
        nesterov: whether to use Nesterov's momentum.
        exclude: regular expressions. A variable whose path (such as "dense/bias") matches one of
            them has no weight decay and no separate rate. The default matches biases and the
            variables of normalization layers; None matches no variable. Keras' method
            `exclude_from_weight_decay` excludes further variables from weight decay only.
        name: of the optimizer.
        kwargs: the arguments of every optimizer of Keras: `clipnorm`, `use_ema` and others.

    Raises:
        ValueError: if `weight_decay` or `epsilon` is negative, or `trust_coefficient` not positive.

    Example:
        >>> rate = hvd.scaled_lr(2.0)
        >>> optimizer = hvd.DistributedOptimizer(hvd.optimizers.LARS(rate, weight_decay=1e-4))
        >>> model.compile(optimizer, loss="sparse_categorical_crossentropy")
    """

    def __init__(
        self,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 1.0,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        trust_coefficient: float = 0.001,
        epsilon: float = 1e-9,
        nesterov: bool = False,
        exclude: Sequence[str] | None = _BIASES_AND_NORMALIZATION,
        name: str = "lars",
        **kwargs: object,
    ) -> None:
        if weight_decay < 0 or epsilon < 0 or trust_coefficient <= 0:
            raise ValueError(
                f"Received: weight_decay={weight_decay}, epsilon={epsilon}, "
                f"trust_coefficient={trust_coefficient}. Expected: 0 or above; the last above 0."
            )
        # Keras' weight decay is not part of the gradient: it shortens the weights separately.
        super().__init__(learning_rate, momentum=momentum, nesterov=nesterov, name=name, **kwargs)
        self.decay = weight_decay
        self.trust_coefficient = trust_coefficient
        self.epsilon = epsilon
        self.exclude = tuple(exclude or ())

    def build(self, variables: list[Variable]) -> None:
        """Creates the variables of the optimizer, and finds the excluded variables."""
        if self.built:
            return
        super().build(variables)
        # `update_step` receives TensorFlow's variable, which does not know its path.
        paths = [getattr(variable, "path", variable.name) for variable in variables]
        self._excluded = [any(re.search(p, path) for p in self.exclude) for path in paths]

    def update_step(self, gradient: Any, variable: Variable, learning_rate: Any) -> None:
        """Updates one variable."""
        gradient = ops.cast(ops.convert_to_tensor(gradient), variable.dtype)
        if not self._excluded[private.index_of(self, variable)]:
            decay = self.decay if private.has_weight_decay(self, variable) else 0.0
            gradient = self._scaled(gradient, ops.convert_to_tensor(variable), decay)
        super().update_step(gradient, variable, learning_rate)

    def get_config(self) -> dict[str, object]:
        """Returns the arguments that make an equal optimizer."""
        config = super().get_config()
        config.update(
            weight_decay=self.decay,
            trust_coefficient=self.trust_coefficient,
            epsilon=self.epsilon,
            exclude=list(self.exclude),
        )
        return config

    def _scaled(self, gradient: Any, weights: Any, decay: float) -> Any:
        """Returns the gradient with weight decay, multiplied by the rate of this variable."""
        # In float32: squares of half-precision numbers overflow.
        size, of_gradient = (
            ops.sqrt(ops.sum(ops.square(ops.cast(tensor, "float32"))))
            for tensor in (weights, gradient)
        )
        rate = self.trust_coefficient * size / (of_gradient + decay * size + self.epsilon)
        usable = ops.logical_and(size > 0, of_gradient > 0)
        rate = ops.cast(ops.where(usable, rate, 1.0), gradient.dtype)
        if decay:
            gradient = gradient + ops.cast(decay, gradient.dtype) * weights
        return rate * gradient
