"""What the reductions of gradients are called: the same on every rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import tensorflow as tf

from tfhvd.compat.variables import variable_name
from tfhvd.ops import sync_monitor
from tfhvd.ops.names import Identity, label_of_variable, outermost_graph

if TYPE_CHECKING:
    from tfhvd.compat.types import Variable

_NAMES_IN_USE = "tfhvd/gradient_names"  # a collection of the outermost graph


def unique_names(prefix: str, variables: Sequence[Variable | None]) -> list[str]:
    """Names a reduction per variable.

    A graph may run reductions side by side, so that a name is used once in it. Eager calls wait for
    their results, and use the same names each time, which the engine then knows. A function that is
    traced again begins from the start: one rank may trace more often than another.
    """
    used: set[str] = set()
    if not tf.executing_eagerly():
        collection = outermost_graph().get_collection_ref(_NAMES_IN_USE)
        if not collection:
            collection.append(used)
        used = collection[0]
    names: list[str] = []
    for position, variable in enumerate(variables):
        whose = variable_name(variable)
        wanted = f"{prefix}/{label_of_variable(position, whose)}"
        name, count = wanted, 1
        while name in used:
            name, count = f"{wanted}_{count}", count + 1
        used.add(name)
        names.append(Identity.of_variable(name, whose))
    if not tf.executing_eagerly():
        sync_monitor.note_names(used)
    return names
