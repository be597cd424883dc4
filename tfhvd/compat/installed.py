"""Installed packages: their versions and their sources."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import re
from pathlib import Path
from types import ModuleType

# The distributions that contain the package `tensorflow`.
_TENSORFLOWS = re.compile(
    r"(?P<name>tensorflow|tensorflow_(?:cpu|gpu|rocm|cpu_aws|intel)|intel_tensorflow"
    r"|tf_nightly(?:_cpu|_gpu)?)-(?P<version>\d+\.\d+[^-]*)\.dist-info"
)


def require(module: str, package: str, user: str) -> ModuleType:
    """Imports a module of a package that only some parts of tfhvd need.

    Args:
        module: the name of the module.
        package: the name with which pip installs it.
        user: the part of tfhvd that needs it, for the error.

    Raises:
        ImportError: if the package is not installed; with the command to type.
    """
    try:
        return importlib.import_module(module)
    except ImportError:
        raise ImportError(
            f"{user} needs the package {package}, which is not installed. Type: pip install "
            f"{package}"
        ) from None


def tensorflow_version() -> str:
    """Imports TensorFlow; returns its version."""
    import tensorflow as tf

    return tf.__version__


def tensorflow_distribution() -> tuple[str, str] | None:
    """Returns the name and version of the installed TensorFlow, without importing it.

    Returns:
        None if there is no TensorFlow, or it does not come from a known distribution.

    Example:
        >>> tensorflow_distribution()  # doctest: +SKIP
        ('tensorflow-cpu', '2.21.0')
    """
    found = importlib.util.find_spec("tensorflow")
    if found is None or found.origin is None:
        return None
    names = [path.name for path in Path(found.origin).parents[1].glob("*.dist-info")]
    matches = [match for match in map(_TENSORFLOWS.fullmatch, sorted(names)) if match]
    if len(matches) != 1:  # with two, one has replaced the files of the other: unknown which
        return None
    return matches[0]["name"].replace("_", "-"), matches[0]["version"]


def version_of(package: str) -> str:
    """Returns the version of a distribution, "" if it is not installed; imports nothing.

    Example:
        >>> version_of("no-such-package")
        ''
    """
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def installer_of(package: str) -> str:
    """Returns the name of the installer of a package, "" if unknown.

    Example:
        >>> installer_of("numpy")  # doctest: +SKIP
        'pip'
    """
    try:
        said = importlib.metadata.distribution(package).read_text("INSTALLER")
    except importlib.metadata.PackageNotFoundError:
        return ""
    return (said or "").strip()


def origin_of(package: str) -> str | None:
    """Returns pip's record of a package's source: JSON, as in PEP 610.

    Returns:
        None for a package from a registry.

    Raises:
        LookupError: if pip has not installed it.
    """
    try:
        return importlib.metadata.distribution(package).read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError as error:
        raise LookupError(f"{package} was not installed by pip") from error
