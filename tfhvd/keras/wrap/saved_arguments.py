"""The arguments of `DistributedOptimizer` in a model's file, with which the training continues.

Both Keras save the arguments in a `.keras` file, as a child of the optimizer. In an `.h5` file they
are an attribute, which tfhvd adds after Keras has written the file. Plain Keras ignores both, and
opens such files.
"""

from __future__ import annotations

import functools
import importlib
import json
import logging
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tfhvd.compat import h5
from tfhvd.compression import Compression
from tfhvd.gradients.reducer import GradientReducer
from tfhvd.ops import ReduceOp

if TYPE_CHECKING:
    import h5py

    from tfhvd.compat.types import ArrayStore, Layer, Model

# The arguments that change the training, and are not variables of the model.
_PLAIN = (
    "backward_passes_per_step",
    "average_aggregated_gradients",
    "gradient_predivide_factor",
    "sparse_as_dense",
    "scale_local_gradients",
    "quarantine",
)
_COMPRESSIONS = {name: getattr(Compression, name) for name in ("none", "fp16", "bf16")}
_CHILD = "distributed_arguments"  # an attribute of distributed optimizers
_SHOWN = 6  # number of variables that a warning names
_logger = logging.getLogger("tfhvd")
_ATTRIBUTE = "tfhvd_arguments"  # of an .h5 file
_made: weakref.WeakKeyDictionary[GradientReducer, Layer] = weakref.WeakKeyDictionary()


def saveable(reducer: GradientReducer, package: str) -> Layer:
    """Returns a layer that holds the arguments of a distributed optimizer for Keras to save.

    Args:
        reducer: of the optimizer.
        package: "keras" or "tf_keras", imported.
    """
    if reducer not in _made:
        _made[reducer] = _saveable_class(package)(weakref.ref(reducer))
    return _made[reducer]


def keep_in_h5(package: str) -> None:
    """Makes a Keras write the arguments into `.h5` files, too.

    Args:
        package: "keras" or "tf_keras", imported.
    """
    h5.after_saves(package, _add)


def _add(model: Model, file: h5py.File) -> None:
    optimizer = getattr(model, "optimizer", None)
    for each in (optimizer, getattr(optimizer, "inner_optimizer", None)):
        if hasattr(type(each), _CHILD):
            file.attrs[_ATTRIBUTE] = getattr(each, _CHILD).text


@functools.cache
def _saveable_class(package: str) -> type:
    keras: Any = importlib.import_module(package)

    class DistributedArguments(keras.layers.Layer):
        """A layer, because Keras saves all layers, optimizers and metrics that it finds."""

        def __init__(self, reducer: weakref.ref[GradientReducer]) -> None:
            super().__init__(name=_CHILD)
            self._reducer = reducer

        @property
        def text(self) -> str:
            """The present arguments as JSON: variables may become local at any time."""
            reducer = self._reducer()
            assert reducer is not None, "its optimizer is being saved"
            return json.dumps(_as_json(reducer))

        def save_own_variables(self, store: ArrayStore) -> None:
            store["json"] = np.frombuffer(self.text.encode(), np.uint8)

        def load_own_variables(self, store: ArrayStore) -> None:
            """Does nothing: `load_model` reads them, and an existing optimizer has arguments."""

    return DistributedArguments


def _as_json(reducer: GradientReducer) -> dict[str, Any]:
    options = reducer.options
    compression = options.compression
    known = [name for name, each in _COMPRESSIONS.items() if each is compression]
    of_class = compression if isinstance(compression, type) else type(compression)
    return {
        **{name: getattr(options, name) for name in _PLAIN},
        "op": options.op.name,
        "compression": known[0] if known else of_class.__name__,
        "local": reducer.local.names(),
        "ranks": options.process_set.ranks if options.process_set.process_set_id else None,
    }


def completed(given: Mapping[str, Any], file: h5py.File, path: str) -> dict[str, Any]:
    """Returns arguments of `DistributedOptimizer`: the given ones, and the file's for the others.

    Args:
        given: the given arguments, without None.
        file: an `.h5` file, or the weights in a `.keras` file.
        path: the path of the file, for messages.

    Raises:
        ValueError: if the file was saved with a compression that must be given again, and is not.
    """
    found: list[str] = []
    file.visit(lambda name: found.append(name) if name.endswith(f"{_CHILD}/vars") else None)
    text = bytes(file[found[0]]["json"][()]).decode() if found else file.attrs.get(_ATTRIBUTE)
    if text is None:
        return dict(given)
    saved = json.loads(text)
    saved["op"] = ReduceOp[saved["op"]]
    _say_what_is_to_be_given(saved.pop("local", []), saved.pop("ranks", None), given, path)
    if "compression" not in given:
        name = saved["compression"]
        if name not in _COMPRESSIONS:
            raise ValueError(
                f"{path} was saved by an optimizer with compression {name}. Received: no "
                f"compression. Expected: hvd.load_model(..., compression=<a {name}>), or "
                "compression=hvd.Compression.none to load it without compression."
            )
        saved["compression"] = _COMPRESSIONS[name]
    return {**saved, **given}


def _say_what_is_to_be_given(
    local: list[str], ranks: list[int] | None, given: Mapping[str, Any], path: str
) -> None:
    """Warns of local variables and a process set, which must be given again with each job."""
    if local:
        more = f" and {len(local) - _SHOWN} more" if len(local) > _SHOWN else ""
        _logger.warning(
            "%s was saved by an optimizer whose gradients of some variables stayed each rank's "
            "own: %s%s. They are reduced now. Write model.optimizer.register_local_var(variable) "
            "for each of them, to train on as before.",
            *(path, ", ".join(local[:_SHOWN]), more),
        )
    if ranks is not None and "process_set" not in given:
        _logger.warning(
            "%s was saved by an optimizer of the ranks %s alone. All ranks train together now. "
            "Write hvd.load_model(..., process_set=hvd.add_process_set(%s)) to train on as before.",
            *(path, list(ranks), list(ranks)),
        )
