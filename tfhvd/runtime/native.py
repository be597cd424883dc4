"""Finds and loads tfhvd's native libraries, and says what to type if they do not fit.

There are three parts: `libtfhvd_core.so` (the engine), the module `_native` (the core's Python
interface) and `libtfhvd_tf.so` (the TensorFlow ops). The last two link to the first, so that the
process has one engine. Only the ops need TensorFlow. A binary wheel has ops for several TensorFlow
versions.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import json
import shlex
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urlparse

from tfhvd.compat import installed
from tfhvd.runtime import builds
from tfhvd.runtime.gpu_selection import choose_gpu

_PACKAGE = Path(__file__).resolve().parents[1]


def core_dir() -> Path:
    """Returns the folder of the native libraries.

    Example:
        >>> core_dir().name
        '_lib'
    """
    return _PACKAGE / "_lib"


@functools.cache
def build_config() -> ModuleType:
    """Returns the configuration of this build, as setup.py recorded it.

    Returns:
        A module with the texts MPI_VENDOR, MPI_VERSION, MPI_LIBRARY_FOLDER and COMPILER; OPS, for
        which see `built_ops`; and BINARY, which is True in a binary wheel.

    Raises:
        ImportError: if tfhvd was not built.
    """
    try:
        return importlib.import_module("tfhvd._build_config")
    except ModuleNotFoundError as error:
        raise ImportError(_not_built(_PACKAGE / "_build_config.py")) from error


def built_ops() -> tuple[builds.Ops, ...]:
    """Returns the libraries of operations of this build, with the oldest TensorFlow first."""
    return tuple(builds.Ops(*facts) for facts in build_config().OPS)


def chosen_ops(version: str | None = None) -> builds.Ops:
    """Returns the library of operations for a TensorFlow, by default for this process's.

    Raises:
        ImportError: if this build has none; the text says what to type.
    """
    version = installed.tensorflow_version() if version is None else version
    found = builds.ops_for(version, built_ops())
    if found is None:
        raise ImportError(_other_tensorflow(version))
    return found


def check_installed_tensorflow() -> str:
    """Checks, without an import, that this build has operations for the installed TensorFlow.

    Returns:
        The version of TensorFlow; "" if it is unknown, which passes the check.

    Raises:
        ImportError: as `chosen_ops`.
    """
    found = installed.tensorflow_distribution()
    if found is None:
        return ""
    chosen_ops(found[1])
    return found[1]


@functools.cache
def load_native() -> ModuleType:
    """Loads the core, without TensorFlow.

    Returns:
        The module `tfhvd._native`.

    Raises:
        ImportError: if it is missing or cannot be loaded; the text says what to type.
    """
    core = core_dir() / "libtfhvd_core.so"
    if not core.is_file():
        raise ImportError(_not_built(core))
    try:
        return importlib.import_module("tfhvd._native")
    except ModuleNotFoundError as error:
        raise ImportError(
            f"tfhvd's module _native is not built for this Python. Type: {rebuild_command()}"
        ) from error
    except ImportError as error:
        raise ImportError(
            f"tfhvd's core cannot be loaded: {error}. Type: {rebuild_command()}"
        ) from error


@functools.cache
def load_tf_ops() -> ModuleType:
    """Loads the core and TensorFlow, and registers tfhvd's ops with it.

    Returns:
        The module of `tf.load_op_library`, with one function for each op.

    Raises:
        ImportError: if the ops are missing, or were built for another TensorFlow than the installed
            one; the text says what to type.
    """
    native = load_native()

    import tensorflow as tf

    ops = chosen_ops()
    path = core_dir() / ops.file
    if not path.is_file():
        raise ImportError(_not_built(path))
    if native.is_initialized() and native.has_gpus():  # TensorFlow was imported after hvd.init
        choose_gpu(native.topology())
    try:
        return tf.load_op_library(str(path))
    except tf.errors.OpError as error:
        raise ImportError(
            f"TensorFlow {installed.tensorflow_version()} cannot load tfhvd's ops: "
            f"{error.message}. They were built with TensorFlow {ops.tensorflow} and "
            f"{build_config().COMPILER}. Type: {rebuild_command()}"
        ) from error


@functools.cache
def installed_nccl() -> str:
    """Returns the file of NCCL from the wheel nvidia-nccl-cu12; "" if it is not installed.

    Example:
        >>> installed_nccl()  # doctest: +SKIP
        '/opt/env/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2'
    """
    if importlib.util.find_spec("nvidia") is None:
        return ""
    found = importlib.util.find_spec("nvidia.nccl")
    for folder in (found.submodule_search_locations or ()) if found else ():
        file = Path(folder) / "lib" / "libnccl.so.2"
        if file.is_file():
            return str(file)
    return ""


def mpi_advice() -> str:
    """Returns text for a message about an MPI that cannot be loaded: the build and what to type.

    Example:
        >>> mpi_advice()  # doctest: +SKIP
        'tfhvd was built with Open MPI 5.0.11 (library in /opt/env/lib). ...'
    """
    config = build_config()
    where = f" (library in {config.MPI_LIBRARY_FOLDER})" if config.MPI_LIBRARY_FOLDER else ""
    return (
        f"tfhvd was built with {config.MPI_VENDOR} {config.MPI_VERSION}{where}. If that MPI was "
        f"removed or replaced, type: {rebuild_command()}"
    )


def rebuild_command() -> str:
    """Returns the command that builds tfhvd again from its origin, for messages."""
    command = ["pip", "install", "--force-reinstall", "--no-deps", "--no-cache-dir"]
    if installed.installer_of("tfhvd") == "uv":  # An environment of uv has no pip.
        command = ["uv", "pip", "install", "--reinstall", "--no-deps", "--no-cache"]
    try:
        origin = installed.origin_of("tfhvd")
    except LookupError:
        # tfhvd is imported from the source tree.
        return shlex.join([*command, "-e", str(_PACKAGE.parent)])
    if origin is None:
        return shlex.join([*command, "--no-binary=tfhvd", "tfhvd"])
    facts = json.loads(origin)
    url = urlparse(facts["url"])
    source = unquote(url.path) if url.scheme == "file" else facts["url"]
    if "vcs_info" in facts:
        source = f"{facts['vcs_info']['vcs']}+{facts['url']}"
    if facts.get("dir_info", {}).get("editable"):
        command.append("-e")
    return shlex.join([*command, source])


def _other_tensorflow(version: str) -> str:
    built = built_ops()
    expected = builds.served_versions(built)
    received = f"Received: TensorFlow {version}. Expected: TensorFlow {expected}."
    if not build_config().BINARY:
        return (
            "tfhvd was built with another TensorFlow than the installed one. "
            f"{received} Type: {rebuild_command()}"
        )
    found = installed.tensorflow_distribution()
    command = builds.replacement(found[0] if found else "tensorflow", built)
    return (
        f"This wheel of tfhvd does not support the installed TensorFlow. {received} Type: {command}"
    )


def _not_built(missing: Path) -> str:
    return f"tfhvd is not built: {missing} is missing. Type: {rebuild_command()}"
