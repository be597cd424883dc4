"""How Keras 3 saves the state of a compression: as a child of the optimizer."""

from __future__ import annotations

import functools
import sys
import weakref
from typing import Any

from tfhvd import _compat
from tfhvd.compression import StatefulCompression

_made: weakref.WeakKeyDictionary[StatefulCompression, Any] = weakref.WeakKeyDictionary()


def saveable(compression: Any) -> Any:
    """Returns what Keras 3 looks for among an optimizer's attributes; None if there is no state."""
    if not isinstance(compression, StatefulCompression) or _compat.KERAS_3 not in sys.modules:
        return None
    if compression not in _made:
        _made[compression] = _saveable_class()(compression)
    return _made[compression]


@functools.cache
def _saveable_class() -> type:
    keras = sys.modules[_compat.KERAS_3]

    class CompressionState(keras.layers.Layer):
        """Keras saves layers, optimizers and metrics, wherever it finds them."""

        def __init__(self, compression: StatefulCompression) -> None:
            super().__init__(name="compression_state")
            # Behind a function, for a layer takes tf.Modules for parts of it.
            self._compression = weakref.ref(compression)

        def save_own_variables(self, store: Any) -> None:
            for number, variable in enumerate(self._compression().state()):
                store[str(number)] = variable.numpy()

        def load_own_variables(self, store: Any) -> None:
            self._compression().load([store[str(n)][()] for n in range(len(store.keys()))])

    return CompressionState
