"""LARS: SGD with a learning rate of each layer's own, for large batches."""

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

    It is SGD whose steps are as long as the weights are large, for each variable w of its own:

        rate = trust_coefficient * |w| / (|gradient| + weight_decay * |w| + epsilon)
        velocity = momentum * velocity - learning_rate * rate * (gradient + weight_decay * w)
        w = w + velocity

    With batches of thousands of samples the learning rates that SGD needs are too large for layers
    whose gradients are large beside their weights; here these take shorter steps. Where the weights
    or the gradient are zero, and of variables that `exclude` names, it is plain SGD without weight
    decay. Use it with a warm-up. For Adam's counterpart see Keras' own `Lamb`.

    Args:
        learning_rate: a number, or a schedule; of the order of 1 to 30, for it is multiplied by the
            trust coefficient.
        momentum: from 0 to 1.
        weight_decay: the factor of the weights that is added to the gradient.
        trust_coefficient: how long a step may be beside the weights.
        epsilon: keeps the division finite.
        nesterov: whether to use Nesterov's momentum.
        exclude: regular expressions; a variable in whose path (such as "dense/bias") one of them is
            found has neither weight decay nor a rate of its own. The default is biases and the
            variables of normalization layers. None for no variable. Keras' method
            `exclude_from_weight_decay` excludes further ones from weight decay alone.
        name: of the optimizer.
        kwargs: what every optimizer of Keras takes: `clipnorm`, `use_ema` and others.

    Raises:
        ValueError: if `weight_decay` or `epsilon` is negative, or `trust_coefficient` not above 0.

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
        # Keras' own weight decay shortens the weights beside the step, not within the gradient.
        super().__init__(learning_rate, momentum=momentum, nesterov=nesterov, name=name, **kwargs)
        self.decay = weight_decay
        self.trust_coefficient = trust_coefficient
        self.epsilon = epsilon
        self.exclude = tuple(exclude or ())

    def build(self, variables: list[Variable]) -> None:
        """Makes the variables of the optimizer, and sees which ones are excluded."""
        if self.built:
            return
        super().build(variables)
        # What is updated is TensorFlow's variable, which does not know its path.
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
        """Returns the arguments that an optimizer like this one is made of."""
        config = super().get_config()
        config.update(
            weight_decay=self.decay,
            trust_coefficient=self.trust_coefficient,
            epsilon=self.epsilon,
            exclude=list(self.exclude),
        )
        return config

    def _scaled(self, gradient: Any, weights: Any, decay: float) -> Any:
        """Returns the gradient, weight decay included, times the rate of the variable's own."""
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
