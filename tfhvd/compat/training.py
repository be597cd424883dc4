"""Private parts of training by Keras.

A part of keras.py, under the same rule: every function here names the versions that need it, and no
other code depends on these versions.
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

    No Keras reports updates. So this wraps the methods that all its optimizers call: `apply` of
    Keras 3, and `apply_gradients` of the two kinds of tf_keras. A second call does nothing.

    Args:
        package: "keras" or "tf_keras", imported.
        note: takes the optimizer and two lists of equal length; a gradient may be None.
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

    They first reduce the gradients, and then check whether these are finite. A second call does
    nothing.
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
    """Returns the epoch, and the step in it, at which a `fit` that has begun will continue.

    BackupAndRestore tells the model when training begins: in Keras 3 by `_initial_epoch`, in
    tf_keras (2.16 to 2.21 at least) by the state that the model's method for counters reads.

    Args:
        model: a model of either Keras.
        epoch: `fit`'s `initial_epoch`.
        steps: the steps of an epoch; None if unknown.
    """
    if hasattr(model, _COUNTERS):
        epoch, step = getattr(model, _COUNTERS)(steps, epoch)
        return int(epoch), int(step)
    return int(getattr(model, "_initial_epoch", None) or epoch), 0


def begin_fit_at(model: Model, epoch: int, step: int) -> Callable[[], None]:
    """Makes a `fit` that has begun continue at a step; returns a function to undo this later."""
    if hasattr(model, _COUNTERS):
        vars(model)[_COUNTERS] = lambda *_: (epoch, step)
        return lambda: vars(model).pop(_COUNTERS, None)
    before = getattr(model, "_initial_epoch", None)
    model._initial_epoch = _Epoch(epoch)

    def undo() -> None:
        model._initial_epoch = before

    return undo


class _Epoch(int):
    """A number that is always true, because Keras 3 treats 0 as a missing number."""

    def __bool__(self) -> bool:
        return True


def optimizers_of(model: Model) -> list[Optimizer]:
    """Lists all optimizers of a model: the optimizer of `compile`, and others.

    The others are attributes of the model, also inside lists and dicts. If the user wrote the
    model's training step, the optimizers of inner models count, too, because the step may use them.
    """
    return found_in(model, keras_compat.is_keras_optimizer)


def found_in(model: Model, of_a_kind: Callable[[object], bool]) -> list[Optimizer]:
    """Lists the objects of a kind in a model; for the places see `optimizers_of`."""
    own = [getattr(model, "optimizer", None), *vars(model).values()]
    if keras_compat.has_own_train_step(model):
        kind = keras_compat.keras_of(model).Model
        within = [layer for layer in adapted.layers_of(model) if isinstance(layer, kind)]
        own += [thing for inner in within for thing in vars(inner).values()]
    return list({id(o): o for o in _flat(own) if o is not None and of_a_kind(o)}.values())


def _flat(things: Iterable[object], depth: int = 3) -> Iterator[object]:
    """Yields the objects in containers."""
    for thing in things:
        if isinstance(thing, (list, tuple)) and depth:
            yield from _flat(thing, depth - 1)
        elif isinstance(thing, Mapping) and depth:
            yield from _flat(thing.values(), depth - 1)
        else:
            yield thing


def seeds_of(model: Model) -> list[Variable]:
    """Lists the variables with the state of the random numbers of a model's layers.

    In Keras 3 they are variables of the model. In tf_keras (2.16 to 2.21 at least) each such layer
    has a generator if `enable_tf_random_generator` was called; otherwise the state is inaccessible.
    """
    if keras_compat.keras_package(model) == keras_compat.KERAS_3:
        weights = {key_of(weight) for weight in model.weights}
        return [variable for variable in model.variables if key_of(variable) not in weights]
    inner = [getattr(layer, "_random_generator", None) for layer in adapted.layers_of(model)]
    generators = [getattr(generator, "_generator", None) for generator in inner]
    return [generator.state for generator in generators if generator is not None]


def positions_built_for(optimizer: Optimizer, variables: list[Variable]) -> list[int] | None:
    """Lists the positions of the variables for which an optimizer is built; None before `build`.

    tf_keras' legacy optimizers do not know whether they are built: the result is all positions.
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
    """Returns the index of each variable among those that an optimizer updates."""
    known = private.attribute(optimizer, "_index_dict", "know what it was built for")
    key = private.attribute(optimizer, "_var_key", "know what it was built for")
    return [known.get(key(variable)) for variable in variables]


def slots_of(
    optimizer: Optimizer, variables: Iterable[Variable], among: Iterable[Variable]
) -> list[Variable]:
    """Lists the slots of some variables: the variables that an optimizer keeps for them.

    Both Keras keep slots in lists, in the order of the variables that the optimizer updates. So the
    slots of a variable have its index. Legacy optimizers have a method for this. An optimizer that
    the user wrote may have slots outside of such lists; these are found by name.

    Args:
        optimizer: an optimizer of either Keras.
        variables: the variables whose slots to find.
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
        return []  # the optimizer is not built
    kept = {key_of(v): v for v in keras_compat.optimizer_variables(optimizer)}
    lists = _lists_of(optimizer, count)
    at_places = {key_of(held[place]) for held in lists for place in places}
    in_lists = {key_of(thing) for held in lists for thing in held}
    rest = [v for key, v in kept.items() if key not in in_lists]
    return [kept[key] for key in kept if key in at_places] + _named_after(variables, among, rest)


def not_shared_by(optimizer: Optimizer) -> list[Variable]:
    """Lists the variables of an optimizer that need not be equal on all ranks.

    These are the learning rate, which callbacks set, and the gradients that Keras 3 accumulates.
    """
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    found = [getattr(inner, "_learning_rate", None)]
    found += getattr(inner, "_accumulated_gradients", None) or ()
    return [variable for variable in found if hasattr(variable, "assign")]


def _lists_of(optimizer: Optimizer, count: int) -> list[Sequence[Any]]:
    """Returns the lists of an optimizer with one element for each variable that it updates."""
    counter = key_of(optimizer.iterations)  # is in the list of all its variables
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
    """Lists the slots with the names of some variables, unless the longer name of another matches.

    Both Keras name slots after the variables of the model; Keras 3 replaces "/" with "_".
    """

    def plain(variable: Variable) -> str:
        return (variable_name(variable) or "").replace("/", "_")

    wanted = {plain(v) for v in variables} - {""}
    names = sorted({plain(v) for v in among} - {""} | wanted, key=len, reverse=True)
    return [s for s in slots if next((n for n in names if n in plain(s)), "") in wanted]
