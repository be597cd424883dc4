"""Digests of a model's state, by which the ranks of a `fit` see at its ends whether it is one."""

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
    """Returns a digest of what is alike on all ranks in training: weights, and optimizers' state.

    Learning rates are left out, and what is each rank's own: local variables, what has no reduced
    gradient, and gradients that are being accumulated.

    Args:
        model: a built model of either Keras.
        step: what is known of its steps.
        kept: the keys of further variables that stay each rank's own.
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
    """Returns digests of a model's other state before training.

    That is one of its frozen weights and statistics, and one of what layers hold that were adapted
    to data, such as vocabularies. Both are 0 once ranks have trained the model: its statistics may
    be of each rank's data from then on.
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
