"""Layers of either Keras that are adapted to data before training, and the results of `adapt`.

Keras 3 and tf_keras (2.16 to 2.21 at least) keep these results in the same places.

| layer | what it computes with | its source |
|---|---|---|
| Normalization | `mean`, `variance`: tensors | its variables, by `finalize_state` |
| the same, with a mean given | the same | `input_mean`, `input_variance` |
| TextVectorization, StringLookup, IntegerLookup | a table | `get_vocabulary`, `idf_weights` |
| Discretization | `bin_boundaries`: a list | the list |
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from tfhvd.compat import keras as keras_compat
from tfhvd.compat import private

if TYPE_CHECKING:
    from tfhvd.compat.types import Layer, Model, Variable

_HELD = ("input_mean", "input_variance", "bin_boundaries", "idf_weights")


def layers_of(model: Model) -> list[Layer]:
    """Lists a model's layers and those within them, the model itself too."""
    return list(private.attribute(model, "_flatten_layers", "know its layers")())


def adapted_variables(model: Model) -> list[Variable]:
    """Lists the variables with the results of `adapt`."""
    adapted = [layer for layer in layers_of(model) if hasattr(layer, "adapt")]
    return [v for layer in adapted for v in keras_compat.model_state(layer)]


def joined_statistics(model: Model, whole: Callable[[Layer], bool]) -> list[Variable]:
    """Lists the moving statistics of layers that normalize over the batches of several ranks.

    Args:
        model: a model of either Keras.
        whole: returns whether a layer uses all ranks in question, or more.
    """
    found = [layer for layer in layers_of(model) if getattr(layer, "synchronized", False)]
    return [v for layer in found if whole(layer) for v in layer.non_trainable_weights]


def take_values_of_variables(model: Model) -> None:
    """Makes layers compute with the present values of their variables; traces have old values."""
    changed = False
    normalization = keras_compat.keras_of(model).layers.Normalization
    for layer in layers_of(model):
        if isinstance(layer, normalization) and layer.built and layer.weights:
            before = np.array(layer.mean), np.array(layer.variance)
            layer.finalize_state()
            after = np.array(layer.mean), np.array(layer.variance)
            changed |= not all(map(np.array_equal, before, after))
    if changed:  # Keras then makes new functions
        model.predict_function = model.test_function = None


def held_apart(model: Model) -> tuple[list[str], int]:
    """Returns the names of layers with values outside of variables, and a digest of these values.

    Args:
        model: a model of either Keras.
    """
    names, everything = [], hashlib.blake2b(digest_size=7)
    for layer in layers_of(model):
        held = list(_held(layer))
        if held:
            names.append(layer.name)
            for part in held:
                everything.update(part)
    return names, int.from_bytes(everything.digest(), "little") if names else 0


def _held(layer: Layer) -> Iterator[bytes]:
    if keras_compat.keras_package(layer) is None or not hasattr(layer, "adapt"):
        return
    if hasattr(layer, "get_vocabulary"):
        yield repr(layer.get_vocabulary()).encode()
    for name in _HELD:
        value = getattr(layer, name, None)
        if value is not None:
            yield np.asarray(value, np.float64).tobytes()
