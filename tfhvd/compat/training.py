"""What training by Keras tells, and lets be changed, only by means that Keras keeps to itself.

A part of keras.py, under the same rule: every function here names the versions that need it, and
nothing else depends on them.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tfhvd.compat import adapted, private
from tfhvd.compat import keras as keras_compat
from tfhvd.compat.variables import key_of, tf_variable, variable_name

if TYPE_CHECKING:
    from tfhvd.compat.types import Gradient, Model, Optimizer, Variable

    _Note = Callable[[Optimizer, list[Gradient], list[Variable]], None]

_COUNTERS = "_maybe_load_initial_counters_from_ckpt"  # a method of tf_keras' models


def after_updates(package: str, note: _Note) -> None:
    """Makes the optimizers of a Keras call `note(self, gradients, variables)` after an update.

    No Keras tells anybody; hence the wrapped methods, which all its optimizers come to: `apply` of
    Keras 3, and `apply_gradients` of tf_keras' two kinds. Calling this twice does nothing.

    Args:
        package: "keras" or "tf_keras", imported.
        note: takes the optimizer and two lists of one length; a gradient may be None.
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
        note(self, grads, private.trained_by(self) if variables is None else variables)
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
        note(self, [gradient for gradient, _ in pairs], [variable for _, variable in pairs])
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
        steps: of an epoch, None if that is unknown.
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


def optimizers_of(model: Model) -> list[Optimizer]:
    """Lists all optimizers of a model: the one that it is compiled with, and others.

    These are its attributes, and what is in lists and dicts among them; and of a model that has a
    training step of its own, which may use them, also those of the models within it.
    """
    return found_in(model, keras_compat.is_keras_optimizer)


def found_in(model: Model, of_a_kind: Callable[[object], bool]) -> list[Optimizer]:
    """Lists those of a model's optimizers that are of a kind: see `optimizers_of`."""
    own = [getattr(model, "optimizer", None), *vars(model).values()]
    if keras_compat.has_own_train_step(model):
        kind = keras_compat.keras_of(model).Model
        within = [layer for layer in adapted.layers_of(model) if isinstance(layer, kind)]
        own += [thing for inner in within for thing in vars(inner).values()]
    return list({id(o): o for o in _flat(own) if o is not None and of_a_kind(o)}.values())


def _flat(things: Iterable[object], depth: int = 3) -> Iterator[object]:
    """Yields what is in containers."""
    for thing in things:
        if isinstance(thing, (list, tuple)) and depth:
            yield from _flat(thing, depth - 1)
        elif isinstance(thing, Mapping) and depth:
            yield from _flat(thing.values(), depth - 1)
        else:
            yield thing


def seeds_of(model: Model) -> list[Variable]:
    """Lists the variables that layers of a model draw random numbers by, as far as there are.

    Keras 3 has them among the model's variables. tf_keras (2.16 to 2.21 at least) has a generator
    in each such layer, if `enable_tf_random_generator` was called; else nobody can have its state.
    """
    if keras_compat.keras_package(model) == keras_compat.KERAS_3:
        weights = {key_of(weight) for weight in model.weights}
        return [variable for variable in model.variables if key_of(variable) not in weights]
    inner = [getattr(layer, "_random_generator", None) for layer in adapted.layers_of(model)]
    generators = [getattr(generator, "_generator", None) for generator in inner]
    return [generator.state for generator in generators if generator is not None]


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
    positions = _positions_in_tf_keras(inner, variables)
    return [i for i, position in enumerate(positions) if position is not None]


def _positions_in_tf_keras(optimizer: Optimizer, variables: Iterable[Variable]) -> list[int | None]:
    """Gives the place of each variable among those that an optimizer updates."""
    known = private.attribute(optimizer, "_index_dict", "know what it was built for")
    key = private.attribute(optimizer, "_var_key", "know what it was built for")
    return [known.get(key(variable)) for variable in variables]


def slots_of(
    optimizer: Optimizer, variables: Iterable[Variable], among: Iterable[Variable]
) -> list[Variable]:
    """Lists the variables that an optimizer keeps for some of a model's variables.

    Both Keras keep them in lists, in the order of the variables that the optimizer updates: those
    of a variable are at its place. Legacy optimizers tell. Only what is in no such list, in an
    optimizer of the user's own, goes by names.

    Args:
        optimizer: of either Keras.
        variables: those whose slots are asked for.
        among: all trainable variables of the model.
    """
    variables = list(variables)
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    use = "know which slots are of which variable"
    if not variables:
        return []
    if keras_compat.is_legacy_optimizer(optimizer):
        module = "tf_keras.src.optimizers.legacy.optimizer_v2"
        key = private.of_module(module, "_var_key", use)
        slots = private.attribute(optimizer, "_slots", use)
        return [slot for v in variables for slot in slots.get(key(v), {}).values()]
    if keras_compat.keras_package(optimizer) == keras_compat.KERAS_3:
        trained = [key_of(v) for v in private.trained_by(optimizer)]
        own = {key_of(v) for v in variables}
        places, count = [i for i, key in enumerate(trained) if key in own], len(trained)
    elif hasattr(optimizer, "_index_dict"):
        found = _positions_in_tf_keras(optimizer, variables)
        places = [place for place in found if place is not None]
        count = len(private.attribute(optimizer, "_index_dict", use))
    else:
        return []  # it is not built
    kept = {key_of(v): v for v in keras_compat.optimizer_variables(optimizer)}
    lists = _lists_of(optimizer, count)
    at_places = {key_of(held[place]) for held in lists for place in places}
    in_lists = {key_of(thing) for held in lists for thing in held}
    rest = [v for key, v in kept.items() if key not in in_lists]
    return [kept[key] for key in kept if key in at_places] + _named_after(variables, among, rest)


def not_shared_by(optimizer: Optimizer) -> list[Variable]:
    """Lists the variables of an optimizer that are no part of the ranks' common state.

    Its learning rate, which callbacks set, and gradients that Keras 3 is still accumulating.
    """
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    found = [getattr(inner, "_learning_rate", None)]
    found += getattr(inner, "_accumulated_gradients", None) or ()
    return [variable for variable in found if hasattr(variable, "assign")]


def _lists_of(optimizer: Optimizer, count: int) -> list[Sequence[Any]]:
    """Returns what an optimizer holds that has one thing for each variable it updates."""
    counter = key_of(optimizer.iterations)  # in the list of all that it keeps
    return [
        held
        for held in vars(optimizer).values()
        if isinstance(held, (list, tuple))
        and len(held) == count
        and counter not in {key_of(thing) for thing in held}
    ]


def _named_after(
    variables: Iterable[Variable], among: Iterable[Variable], slots: Iterable[Variable]
) -> list[Variable]:
    """Lists the slots that are named after some variables, and not after another one's longer name.

    Both Keras name them after the model's, Keras 3 with "_" for "/".
    """

    def plain(variable: Variable) -> str:
        return (variable_name(variable) or "").replace("/", "_")

    wanted = {plain(v) for v in variables} - {""}
    names = sorted({plain(v) for v in among} - {""} | wanted, key=len, reverse=True)
    return [s for s in slots if next((n for n in names if n in plain(s)), "") in wanted]
