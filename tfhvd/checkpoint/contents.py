"""State: the objects that a program saves, such as models, optimizers, variables and batches."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tfhvd.checkpoint import plain
from tfhvd.checkpoint.names import same_names
from tfhvd.compat import adapted, training
from tfhvd.compat import keras as keras_compat
from tfhvd.compat.variables import key_of, tf_variable, variable_name
from tfhvd.data import Batches, Position

if TYPE_CHECKING:
    from tfhvd.compat.types import Model, Variable


@dataclasses.dataclass(frozen=True)
class Named:
    """A variable of the state.

    Attributes:
        name: its name, unique in the state.
        variable: the variable, of either Keras or TensorFlow.
        equal: whether it must be equal on all ranks; other variables may be equal.
        local: whether it is different on each rank, and may have different shapes.
        seed: whether it is the state of random numbers.
    """

    name: str
    variable: Variable
    equal: bool
    local: bool
    seed: bool = False


class State:
    """The objects of a program, as tensors with names and values with names.

    Args:
        objects: the objects by the names that the program gives them.
        local: the variables that are different on each rank.

    Attributes:
        variables: all variables of the objects, in the same order on every rank.

    Raises:
        TypeError: if an object is of a kind that cannot be saved.
        ValueError: if a model has no variables yet.
    """

    def __init__(self, objects: Mapping[str, Any], local: Iterable[Variable] = ()) -> None:
        self._objects = dict(objects)
        self._local = {key_of(variable) for variable in local}
        self._keys: set[int] = set()
        found: list[Named] = []
        for name, thing in self._objects.items():
            found += self._of(name, thing)
        self.variables = _unique(found)

    def name_as(self, names: Iterable[str]) -> None:
        """Gives variables their names from another rank, if the names differ only in numbers.

        Keras numbers layers, so a rank that has made more layers has other names.

        Args:
            names: the names of the other rank's variables.
        """
        there = same_names([named.name for named in self.variables], names)
        self.variables = _unique(
            dataclasses.replace(named, name=there.get(named.name, named.name))
            for named in self.variables
        )

    def values(self) -> dict[str, Any]:
        """Returns the values that are not tensors, in the types of JSON.

        Raises:
            TypeError: if a value is of another type; with the name of the object.
        """
        found = {}
        for name, thing in self._objects.items():
            try:
                if _has_value(thing):
                    found[name] = plain.encoded(_value_of(thing))
            except TypeError as error:
                raise TypeError(f"Checkpoint: '{name}': {error}") from None
        return found

    def without(self, values: Mapping[str, Any]) -> list[str]:
        """Lists the objects without a value in `values`.

        Args:
            values: an earlier result of `values`.
        """
        having = [name for name, thing in self._objects.items() if _has_value(thing)]
        return [name for name in having if name not in values]

    def take_values(self, values: Mapping[str, Any]) -> None:
        """Restores the values of objects, except of those without a value.

        Args:
            values: an earlier result of `values`.
        """
        for name, thing in self._objects.items():
            if _has_value(thing) and name in values:
                _give_back(thing, plain.decoded(values[name]))

    def after_variables(self) -> None:
        """Tells models that their variables have new values."""
        for thing in self._objects.values():
            if _is_model(thing):
                adapted.take_values_of_variables(thing)

    def _of(self, name: str, thing: Any) -> list[Named]:
        if _is_model(thing):
            return self._of_model(name, thing)
        if keras_compat.is_keras_optimizer(thing):
            return self._of_optimizer(name, thing)
        if isinstance(thing, tf.random.Generator):
            return self._named(name, [thing.state], equal=False, seed=True)
        if _is_variable(thing):
            return self._named(name, [thing], equal=True)
        if isinstance(thing, (list, tuple)) and thing and all(map(_is_variable, thing)):
            return self._named(name, thing, equal=True)
        if _has_value(thing):
            return []
        raise TypeError(
            f"Checkpoint: received: '{name}' of type {type(thing).__name__}. Expected: a model, an "
            "optimizer, variables, hvd.data.Batches, tf.random.Generator, a dict of plain values, "
            "or an object with get_state and set_state."
        )

    def _of_model(self, name: str, model: Model) -> list[Named]:
        if not model.built or not keras_compat.variables_by_now(model):
            raise ValueError(
                f"The model '{model.name}' has no variables yet, which a checkpoint could have. "
                "Give it an Input, or call model.build(shape) before."
            )
        trained = {key_of(v) for v in model.trainable_variables}
        weights = keras_compat.model_state(model)
        found = self._named(name, [v for v in weights if key_of(v) in trained], equal=True)
        found += self._named(name, [v for v in weights if key_of(v) not in trained], equal=False)
        for optimizer in training.optimizers_of(model):
            if optimizer is getattr(model, "optimizer", None):
                keras_compat.build_optimizer(optimizer, model.trainable_variables)
            found += self._of_optimizer(f"{name}/optimizer", optimizer)
        return found + self._named(name, training.seeds_of(model), equal=False, seed=True)

    def _of_optimizer(self, name: str, optimizer: Any) -> list[Named]:
        apart = {key_of(v) for v in training.not_shared_by(optimizer)}
        variables = keras_compat.optimizer_variables(optimizer)
        found = self._named(name, [v for v in variables if key_of(v) not in apart], equal=True)
        return found + self._named(name, [v for v in variables if key_of(v) in apart], equal=False)

    def _named(
        self, owner: str, variables: Iterable[Variable], equal: bool, seed: bool = False
    ) -> list[Named]:
        """Names the variables that are in no earlier object."""
        found = []
        for variable in variables:
            if key_of(variable) not in self._keys:
                self._keys.add(key_of(variable))
                name = f"{owner}/{variable_name(variable) or 'variable'}"
                if tf.as_dtype(variable.dtype) in (tf.string, tf.variant, tf.resource):
                    raise TypeError(f"Checkpoint: '{name}' holds {variable.dtype}, no numbers.")
                local = key_of(variable) in self._local
                apart = getattr(variable, "overwrite_with_gradient", False)  # a scale of float8
                is_equal = equal and not (local or apart)
                found.append(Named(name, variable, is_equal, local, seed))
        return found


def _unique(variables: Iterable[Named]) -> list[Named]:
    counts: collections.Counter[str] = collections.Counter()
    found = []
    for named in variables:
        counts[named.name] += 1
        if counts[named.name] > 1:
            named = dataclasses.replace(named, name=f"{named.name}#{counts[named.name]}")
        found.append(named)
    return found


def _is_model(thing: object) -> bool:
    return hasattr(thing, "fit") and keras_compat.keras_package(thing) is not None


def _is_variable(thing: object) -> bool:
    inner = tf_variable(thing)
    return isinstance(inner, tf.Variable) or hasattr(inner, "assign")


def _has_value(thing: object) -> bool:
    if isinstance(thing, (Batches, dict)) or keras_compat.is_callback(thing):
        return True
    methods = (getattr(thing, name, None) for name in ("get_state", "set_state"))
    return all(map(callable, methods)) and keras_compat.keras_package(thing) is None


def _value_of(thing: Any) -> Any:
    if isinstance(thing, Batches):
        return dataclasses.asdict(thing.position)
    if keras_compat.is_callback(thing):
        return {key: value for key, value in vars(thing).items() if _is_plain(value)}
    return thing if isinstance(thing, dict) else thing.get_state()


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (bool, int, float, str, np.generic, np.ndarray))


def _give_back(thing: Any, value: Any) -> None:
    if isinstance(thing, Batches):
        thing.position = Position(**value)
    elif keras_compat.is_callback(thing):
        vars(thing).update(value)
    elif isinstance(thing, dict):
        thing.clear()
        thing.update(value)
    else:
        thing.set_state(value)
