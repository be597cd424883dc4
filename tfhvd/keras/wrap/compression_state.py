"""The state of a compression, which Keras 3 saves as a child of the optimizer."""

from __future__ import annotations

import contextlib
import functools
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from tfhvd.compat import keras as keras_compat
from tfhvd.compression import AnyCompression, StatefulCompression, has_state
from tfhvd.compression.stateful import Saved
from tfhvd.runtime.process_sets import ProcessSet

if TYPE_CHECKING:
    import numpy as np

    from tfhvd.compat.types import ArrayStore, Layer

_made: weakref.WeakKeyDictionary[StatefulCompression, Layer] = weakref.WeakKeyDictionary()


def saveable(compression: AnyCompression) -> Layer | None:
    """Returns a layer for Keras 3 to save with the optimizer; None if there is no state."""
    if not has_state(compression) or keras_compat.KERAS_3 not in sys.modules:
        return None
    if compression not in _made:
        _made[compression] = _saveable_class()(compression)
    return _made[compression]


@functools.cache
def _saveable_class() -> type:
    keras: Any = sys.modules[keras_compat.KERAS_3]

    class CompressionState(keras.layers.Layer):
        """A layer, because Keras saves all layers, optimizers and metrics that it finds."""

        def __init__(self, compression: StatefulCompression) -> None:
            super().__init__(name="compression_state")
            # A weak reference, because a layer treats an attribute that is a tf.Module as its part.
            self._compression: Callable[[], Any] = weakref.ref(compression)

        def save_own_variables(self, store: ArrayStore) -> None:
            saved = self._compression().saved()
            for rank, values in saved.left_out.items():
                for number, value in enumerate(values):
                    store[f"rank_{rank}.{number}"] = value
            for number, value in enumerate(saved.shared):
                store[f"shared.{number}"] = value

        def load_own_variables(self, store: ArrayStore) -> None:
            self._compression().load(read(store))

    return CompressionState


def read(store: ArrayStore) -> Saved:
    """Reads the state that `save_own_variables` wrote, from Keras' store or a group of a file."""
    parts: dict[str, dict[int, np.ndarray]] = {}
    for key in store.keys():  # noqa: SIM118 (Keras' store is no dict)
        part, _, number = key.rpartition(".")
        parts.setdefault(part, {})[int(number)] = store[key][()]
    lists = {part: [values[n] for n in sorted(values)] for part, values in parts.items()}
    shared = lists.pop("shared", [])
    return Saved({int(part.rpartition("_")[2]): own for part, own in lists.items()}, shared)


@contextlib.contextmanager
def gathered(
    compressions: Iterable[AnyCompression], root_rank: int, ranks: ProcessSet
) -> Iterator[None]:
    """Gives one rank the compression state of all ranks, so that it can save this state."""
    with contextlib.ExitStack() as stack:
        for compression in compressions:
            if has_state(compression):
                stack.enter_context(compression.gathered(root_rank, ranks))
        yield
