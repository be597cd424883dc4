"""What training by Keras tells, and lets be changed, only by means that Keras keeps to itself.

A part of keras.py, under the same rule: every function here names the versions that need it, and
nothing else depends on them.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from tfhvd.compat import keras as keras_compat
from tfhvd.compat import private
from tfhvd.compat.variables import tf_variable

if TYPE_CHECKING:
    from tfhvd.compat.types import Gradient, Model, Optimizer, Variable

    _Note = Callable[[list[Gradient], list[Variable]], None]

_COUNTERS = "_maybe_load_initial_counters_from_ckpt"  # a method of tf_keras' models


def after_updates(package: str, note: _Note) -> None:
    """Makes the optimizers of a Keras call `note(gradients, variables)` after what they update.

    No Keras tells anybody; hence the wrapped methods, which all its optimizers come to: `apply` of
    Keras 3, and `apply_gradients` of tf_keras' two kinds. Calling this twice does nothing.

    Args:
        package: "keras" or "tf_keras", imported.
        note: takes two lists of one length; a gradient may be None.
    """
    optimizers = sys.modules[package].optimizers
    kinds = [optimizers.Optimizer]
    if package == keras_compat.TF_KERAS:
        kinds.append(optimizers.legacy.Optimizer)
    method = "apply" if package == keras_compat.KERAS_3 else "apply_gradients"
    for kind in kinds:
        private.owner_of(kind, method, "see what is updated")
        owner = [cls for cls in kind.__mro__ if method in vars(cls)][-1]
        make = _noting_apply if package == keras_compat.KERAS_3 else _noting_pairs
        private.replace_method(owner, method, functools.partial(make, note))


def _noting_apply(note: _Note, original: Callable[..., Any]) -> Callable[..., Any]:
    def apply(
        self: Optimizer,
        grads: Iterable[Gradient],
        trainable_variables: Iterable[Variable] | None = None,
    ) -> Any:
        grads = list(grads)
        variables = None if trainable_variables is None else list(trainable_variables)
        result = original(self, grads, variables)
        note(grads, private.trained_by(self) if variables is None else variables)
        return result

    return apply


def _noting_pairs(note: _Note, original: Callable[..., Any]) -> Callable[..., Any]:
    def apply_gradients(
        self: Optimizer,
        grads_and_vars: Iterable[tuple[Gradient, Variable]],
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        pairs = list(grads_and_vars)
        result = original(self, pairs, *args, **kwargs)
        note([gradient for gradient, _ in pairs], [variable for _, variable in pairs])
        return result

    return apply_gradients


def surround_loss_scales(around: Callable[[], contextlib.AbstractContextManager[None]]) -> None:
    """Makes the loss scales of tf_keras reduce and apply gradients within `around`.

    They have gradients reduced first, and look for what is not finite after that. Calling this
    twice does nothing.
    """

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def apply_gradients(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
            with around():
                return original(self, *args, **kwargs)

        return apply_gradients

    for name in ("LossScaleOptimizer", "LossScaleOptimizerV3"):
        module = "tf_keras.src.mixed_precision.loss_scale_optimizer"
        owner = private.of_module(module, name, "know gradients of a scaled loss")
        private.replace_method(owner, "apply_gradients", make)


def where_fit_begins(model: Model, epoch: int, steps: int | None) -> tuple[int, int]:
    """Returns the epoch, and the step in it, with which a `fit` that has begun goes on.

    BackupAndRestore says so to the model when training begins: in Keras 3 by `_initial_epoch`, in
    tf_keras (2.16 to 2.21 at least) by what its method for counters then finds.

    Args:
        model: of either Keras.
        epoch: `fit`'s `initial_epoch`.
        steps: of an epoch, None where that is not known.
    """
    if hasattr(model, _COUNTERS):
        epoch, step = getattr(model, _COUNTERS)(steps, epoch)
        return int(epoch), int(step)
    return int(getattr(model, "_initial_epoch", None) or epoch), 0


def begin_fit_at(model: Model, epoch: int, step: int) -> Callable[[], None]:
    """Makes a `fit` that has begun go on elsewhere; returns what undoes that after it."""
    if hasattr(model, _COUNTERS):
        vars(model)[_COUNTERS] = lambda *_: (epoch, step)
        return lambda: vars(model).pop(_COUNTERS, None)
    before = getattr(model, "_initial_epoch", None)
    model._initial_epoch = _Epoch(epoch)

    def undo() -> None:
        model._initial_epoch = before

    return undo


class _Epoch(int):
    """A number that is always true: Keras 3 takes a 0 for none."""

    def __bool__(self) -> bool:
        return True


def positions_built_for(optimizer: Optimizer, variables: list[Variable]) -> list[int] | None:
    """Lists which of some variables an optimizer has its own variables for; None before `build`.

    tf_keras' legacy optimizers do not know when they are built: all, always.
    """
    if hasattr(optimizer, "_create_all_weights"):
        return list(range(len(variables)))
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    if keras_compat.keras_package(inner) == keras_compat.KERAS_3:
        if not inner.built:
            return None
        own = {id(tf_variable(v)) for v in private.trained_by(inner)}
        return [i for i, v in enumerate(variables) if id(tf_variable(v)) in own]
    if not getattr(inner, "_built", False):
        return None
    known = private.attribute(inner, "_index_dict", "know what it was built for")
    key = private.attribute(inner, "_var_key", "know what it was built for")
    return [i for i, v in enumerate(variables) if key(v) in known]
