"""Digests of a model's state, which ranks compare at the beginning and at the end of `fit`."""

from __future__ import annotations

import weakref
from collections.abc import Collection
from typing import TYPE_CHECKING

from tfhvd.compat import adapted, training
from tfhvd.compat import keras as keras_compat
from tfhvd.compat.variables import key_of
from tfhvd.keras.wrap.model_state import local_keys
from tfhvd.replicas import digest

if TYPE_CHECKING:
    from tfhvd.compat.types import Model, Variable
    from tfhvd.ops.sync_monitor import Step

_trained: weakref.WeakSet[Model] = weakref.WeakSet()  # by several ranks


def of_trained(model: Model, step: Step, kept: Collection[int] = ()) -> int:
    """Returns a digest of the state that training keeps equal: weights and optimizers' state.

    The digest leaves out learning rates, and everything that belongs to one rank: local variables,
    variables without a reduced gradient, and gradients in accumulation.

    Args:
        model: a built model of either Keras.
        step: the record of what the model's steps do.
        kept: the keys of further variables that may differ between ranks.
    """
    own = local_keys(model, step) | set(kept) | {key_of(v) for v in step.unreduced()}
    weights = [*model.trainable_variables, *adapted.adapted_variables(model)]
    variables = [v for v in weights if _is_shared(v, own)]
    for optimizer in training.optimizers_of(model):
        apart = own | {key_of(v) for v in training.not_shared_by(optimizer)}
        variables += [
            v for v in keras_compat.optimizer_variables(optimizer) if _is_shared(v, apart)
        ]
    return digest(variables)


def of_others(model: Model, kept: Collection[int] = ()) -> list[int]:
    """Returns two digests of a model's other state before training.

    One is of the frozen weights and statistics, and one of the data that layers were adapted to,
    such as vocabularies. Both are 0 after the first call for a model: when ranks have trained it,
    its statistics may come from each rank's own data.
    """
    if model in _trained:
        return [0, 0]
    _trained.add(model)
    trainable = {key_of(v) for v in model.trainable_variables}
    others = [v for v in keras_compat.model_state(model) if key_of(v) not in trainable]
    return [digest(v for v in others if _is_shared(v, kept)), adapted.held_apart(model)[1]]


def _is_shared(variable: Variable, own: Collection[int]) -> bool:
    overwritten = getattr(variable, "overwrite_with_gradient", False)
    return not overwritten and key_of(variable) not in own
