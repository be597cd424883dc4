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

    The file has the arguments of the `DistributedOptimizer` that was saved, except for its groups.
    Those that are given here, and are not None, go before them. A process set and local variables
    are named in a warning, to be given again. Plain Keras opens the same file, and gives the plain
    optimizer. Each rank reads the file itself: where only rank 0 has it, load it there and let
    `BroadcastGlobalVariablesCallback` bring the others up to it.

    Args:
        filepath: a `.keras` or `.h5` file. It is opened with the Keras that wrote it, Keras 3 or
            tf_keras; anything else with `tf.keras`.
        custom_optimizers: optimizer classes of your own that the file may name.
        custom_objects: other classes and functions that the file may name, by their names.
        compression: how gradients travel: a member of `Compression`. One with a state, such as
            `topk`, reduces each gradient on its own, and leaves alone those that it does not suit.
        legacy_opts: whether the optimizer is to be one of `tf_keras.optimizers.legacy`. The file
            says which it is; this says that it must be such a one.
        safe_mode: whether Keras refuses a file with pickled code in it, such as a Lambda layer.
        **optimizer_arguments: further arguments of `DistributedOptimizer`.

    Returns:
        The model, compiled if it was saved so, with its optimizer's state.

    Raises:
        OSError, ValueError: as Keras does where there is no such file, none of a model, or one that
            is not safe.
        ValueError: for `legacy_opts` with a file whose optimizer is no legacy one; where a file's
            optimizer had a compression with a state, and none is given; and for an `.h5` file of a
            plain optimizer that accumulates gradients, without `backward_passes_per_step`.
        TypeError, ValueError: as `DistributedOptimizer`.

    Example:
        >>> model = hvd.load_model("model.keras")
    """
    objects: dict[str, object] = {cls.__name__: cls for cls in custom_optimizers or ()}
    objects.update(custom_objects or {})
    keras = _keras_of(pathlib.Path(filepath))
    if keras.__name__ == keras_compat.KERAS_3:
        importlib.import_module("tfhvd.keras.optimizers.lars")  # Keras then knows it
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
    """Adds what a file says of the optimizer's arguments to those that are given."""
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
    """Gives a compression the state that a `.keras` file has, if it has one."""
    compression.build(model.trainable_variables)
    if not zipfile.is_zipfile(filepath):
        return
    with _weights_of(filepath) as file:
        group = file.get("optimizer/compression_state/vars")
        if group is not None:
            compression.load(read(group))


def _keras_of(filepath: pathlib.Path) -> ModuleType:
    """Gives the Keras that wrote a file, by the version in it; `tf.keras` where none is."""
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
