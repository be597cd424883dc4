"""Models in `.h5` files, which both Keras write and read by private functions."""

from __future__ import annotations

import functools
import importlib
import os
import pathlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tfhvd.compat import keras as keras_compat
from tfhvd.compat import private

if TYPE_CHECKING:
    import h5py

    from tfhvd.compat.types import Model

    _Add = Callable[[Model, h5py.File], None]

# The modules that write a whole model for `save` (Keras 3.5 to 3.15, tf_keras 2.16 to 2.21 at
# least).
_WRITES = {
    keras_compat.KERAS_3: "keras.src.legacy.saving.legacy_h5_format",
    keras_compat.TF_KERAS: "tf_keras.src.saving.legacy.hdf5_format",
}


def after_saves(package: str, add: _Add) -> None:
    """Makes a Keras call `add(model, file)` after it has written a model and its optimizer.

    Calling this twice does nothing.

    Args:
        package: "keras" or "tf_keras", imported.
        add: may write more attributes of the file.
    """
    name = "save_model_to_hdf5"
    private.of_module(_WRITES[package], name, "save what load_model needs to know")
    make = functools.partial(_adding, add)
    private.replace_method(importlib.import_module(_WRITES[package]), name, make)


def _adding(add: _Add, original: Callable[..., Any]) -> Callable[..., Any]:
    def save_model_to_hdf5(
        model: Model, filepath: Any, overwrite: bool = True, include_optimizer: bool = True
    ) -> None:
        import h5py  # Keras needs it to write the file.

        if isinstance(filepath, h5py.File):
            original(model, filepath, overwrite, include_optimizer)
            if include_optimizer:
                add(model, filepath)
            return
        before = _written_at(filepath)
        original(model, filepath, overwrite, include_optimizer)
        if include_optimizer and _written_at(filepath) != before:  # else the user refused to save
            with h5py.File(filepath, "a") as file:
                add(model, file)

    return save_model_to_hdf5


def _written_at(path: str | os.PathLike[str]) -> int | None:
    file = pathlib.Path(path)
    return file.stat().st_mtime_ns if file.exists() else None


def restore_optimizer(model: Model, filepath: str | os.PathLike[str]) -> None:
    """Restores the optimizer's state of a Keras 3 model that was loaded from an .h5 file.

    Keras 3 (3.5 to 3.15 at least) builds the optimizer only for the variables that the model itself
    holds, without those of its layers. Keras then skips the saved state, and the optimizer could
    not update the model.
    """
    optimizer = model.optimizer
    if keras_compat.keras_package(optimizer) != keras_compat.KERAS_3:
        return
    if len(private.trained_by(optimizer)) == len(model.trainable_variables):
        return
    import h5py  # Keras needs it to read the file.

    model.optimizer = type(optimizer).from_config(optimizer.get_config())
    model.optimizer.build(model.trainable_variables)
    with h5py.File(filepath, "r") as file:
        group = file.get("optimizer_weights")
        if group is not None:
            for variable, name in zip(model.optimizer.variables, group.attrs["weight_names"]):
                variable.assign(group[name][()])
