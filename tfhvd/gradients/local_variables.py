"""Variables whose gradients stay each rank's own: parts of a model that only one rank has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tfhvd.compat import keras as keras_compat
from tfhvd.compat.variables import key_of, variable_name

if TYPE_CHECKING:
    from tfhvd.compat.types import Layer, Variable


class LocalVariables:
    """Which variables are local, of those that are trained.

    Variables are held, so that none is mistaken for another that is made after it is gone. Layers
    are asked for their variables when there is a gradient: before, they may not be built.
    """

    def __init__(self, layers: Layer | Iterable[Layer] | None = None) -> None:
        """Takes layers whose variables are local.

        Args:
            layers: a Keras layer, several, or None.

        Raises:
            TypeError: if one of them is no Keras layer.
        """
        self._variables: dict[int, Variable] = {}
        self._layers = _layers(layers)

    def add(self, variable: Variable) -> None:
        """Makes a variable (or a watched tensor) local."""
        self._variables[key_of(variable)] = variable

    def variables(self) -> list[Variable]:
        """Returns the variables that were added, without those of layers."""
        return list(self._variables.values())

    def names(self) -> list[str]:
        """Returns the names of all local variables there are now."""
        of_layers = [v for layer in self._layers for v in layer.weights]
        return [variable_name(v) or "(without a name)" for v in [*self.variables(), *of_layers]]

    def keys(self) -> set[int]:
        """Returns the keys, as of `key_of`, of all local variables there are now.

        Of a layer all of its weights: statistics and what is frozen are this rank's own as well.
        """
        of_layers = (v for layer in self._layers for v in layer.weights)
        return {*self._variables, *map(key_of, of_layers)}


def _layers(layers: Layer | Iterable[Layer] | None) -> list[Layer]:
    if layers is None:
        return []
    found = list(layers) if isinstance(layers, Iterable) else [layers]
    for layer in found:
        if keras_compat.keras_package(layer) is None or not hasattr(layer, "weights"):
            raise TypeError(
                f"local_layers takes Keras layers, and {layer!r} is not one; for a variable use "
                "register_local_var or register_local_source."
            )
    return found
