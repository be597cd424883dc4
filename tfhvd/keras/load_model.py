"""load_model: opens a saved model with its optimizer distributed again."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import pathlib
import zipfile
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tfhvd.compat import h5
from tfhvd.compat import keras as keras_compat
from tfhvd.compression import AnyCompression, StatefulCompression, has_state
from tfhvd.keras.optimizer import DistributedOptimizer
from tfhvd.keras.wrap import saved_arguments
from tfhvd.keras.wrap.compression_state import read

if TYPE_CHECKING:
    import h5py

    from tfhvd.compat.types import Model


def load_model(
    filepath: str | pathlib.Path,
    custom_optimizers: Sequence[type] | None = None,
    custom_objects: dict[str, object] | None = None,
    compression: AnyCompression | None = None,
    legacy_opts: bool = False,
    safe_mode: bool = True,
    **optimizer_arguments: Any,
) -> Model:
    """Opens a model saved by `model.save` and wraps its optimizer with `DistributedOptimizer`.

    The file contains the arguments of the saved `DistributedOptimizer`, except `groups`. Arguments
    of this call that are not None replace them. A process set and local variables must be given
    again: a warning names them. Plain Keras opens the same file with the plain optimizer. Each rank
    reads the file itself. If only rank 0 has the file, load it there, and let
    `BroadcastGlobalVariablesCallback` give the others its state.

    Args:
        filepath: a `.keras` or `.h5` file. It is opened with the Keras that wrote it, Keras 3 or
            tf_keras; anything else with `tf.keras`.
        custom_optimizers: optimizer classes of your own that the file may name.
        custom_objects: other classes and functions that the file may name, by their names.
        compression: the compression of gradients for the network, a member of `Compression`. With a
            state, such as `topk`, it reduces each gradient separately, and does not compress
            gradients for which it is unsuitable.
        legacy_opts: whether the optimizer must be one of `tf_keras.optimizers.legacy`. The file
            determines the optimizer; this argument only checks it.
        safe_mode: whether Keras refuses a file with pickled code in it, such as a Lambda layer.
        **optimizer_arguments: further arguments of `DistributedOptimizer`.

    Returns:
        The model, compiled if it was saved so, with its optimizer's state.

    Raises:
        OSError, ValueError: from Keras, if the file does not exist, has no model, or is not safe.
        ValueError: for `legacy_opts` if the file's optimizer is not a legacy one; if the file's
            optimizer had a compression with a state, and no compression is given; and for an `.h5`
            file of a plain optimizer that accumulates gradients, without
            `backward_passes_per_step`.
        TypeError, ValueError: as `DistributedOptimizer`.

    Example:
        >>> model = hvd.load_model("model.keras")
    """
    objects: dict[str, object] = {cls.__name__: cls for cls in custom_optimizers or ()}
    objects.update(custom_objects or {})
    keras = _keras_of(pathlib.Path(filepath))
    if keras.__name__ == keras_compat.KERAS_3:
        importlib.import_module("tfhvd.keras.optimizers.lars")  # registers LARS with Keras
    model = keras.models.load_model(str(filepath), custom_objects=objects, safe_mode=safe_mode)
    if getattr(model, "optimizer", None) is not None:
        if legacy_opts and not keras_compat.is_legacy_optimizer(model.optimizer):
            raise ValueError(
                "legacy_opts=True is for files with an optimizer of tf_keras.optimizers.legacy, "
                f"and this file has {keras.__name__}'s {type(model.optimizer).__name__}; leave out "
                "legacy_opts."
            )
        if _is_h5(pathlib.Path(filepath)):
            h5.restore_optimizer(model, filepath)
        given = optimizer_arguments
        given |= {} if compression is None else {"compression": compression}
        arguments = _completed(given, model, pathlib.Path(filepath))
        model.optimizer = DistributedOptimizer(model.optimizer, **arguments)
        if compression is not None and has_state(compression):
            _restore_compression(compression, model, pathlib.Path(filepath))
    return model


def _completed(given: dict[str, Any], model: Model, filepath: pathlib.Path) -> dict[str, Any]:
    """Returns the given arguments of the optimizer, and the file's for the others."""
    if zipfile.is_zipfile(filepath):
        with _weights_of(filepath) as file:
            return saved_arguments.completed(given, file, str(filepath))
    if _is_h5(filepath):
        import h5py  # Keras needs it to read the file.

        with h5py.File(filepath, "r") as file:
            given = saved_arguments.completed(given, file, str(filepath))
    steps = getattr(model.optimizer, "gradient_accumulation_steps", None)
    if steps and "backward_passes_per_step" not in given:
        raise ValueError(
            f"The optimizer in {filepath} accumulates {steps} passes, and the file does not say "
            "whether they are added up or averaged: it was written without tfhvd, or by an older "
            "one. Received: no backward_passes_per_step. "
            f"Expected: hvd.load_model(..., backward_passes_per_step={steps}), with "
            "average_aggregated_gradients=True if they are averaged."
        )
    return given


@contextlib.contextmanager
def _weights_of(filepath: pathlib.Path) -> Iterator[h5py.File]:
    """Opens the weights in a `.keras` file."""
    import h5py  # Keras needs it to write the file.

    with zipfile.ZipFile(filepath) as archive:
        weights = io.BytesIO(archive.read("model.weights.h5"))
    with h5py.File(weights, "r") as file:
        yield file


def _restore_compression(
    compression: StatefulCompression, model: Model, filepath: pathlib.Path
) -> None:
    """Restores the state of a compression from a `.keras` file, if the file has one."""
    compression.build(model.trainable_variables)
    if not zipfile.is_zipfile(filepath):
        return
    with _weights_of(filepath) as file:
        group = file.get("optimizer/compression_state/vars")
        if group is not None:
            compression.load(read(group))


def _keras_of(filepath: pathlib.Path) -> ModuleType:
    """Returns the Keras that wrote a file, by the version in the file; `tf.keras` without one."""
    version = ""
    if zipfile.is_zipfile(filepath):
        with zipfile.ZipFile(filepath) as archive:
            version = json.loads(archive.read("metadata.json")).get("keras_version", "")
    elif _is_h5(filepath):
        import h5py

        with h5py.File(filepath, "r") as file:
            version = file.attrs.get("keras_version", "")
    version = version.decode() if isinstance(version, bytes) else str(version)
    if not version:
        return tf.keras
    return importlib.import_module(
        keras_compat.TF_KERAS if version.startswith("2.") else keras_compat.KERAS_3
    )


def _is_h5(filepath: pathlib.Path) -> bool:
    if not filepath.is_file():
        return False
    import h5py  # Keras needs it to read the file.

    return bool(h5py.is_hdf5(filepath))
