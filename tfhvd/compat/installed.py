"""What is installed, in which version, and where it came from."""

from __future__ import annotations

import importlib.metadata


def tensorflow_version() -> str:
    """Returns the version of the TensorFlow in this process, which is imported for it."""
    import tensorflow as tf

    return tf.__version__


def origin_of(package: str) -> str | None:
    """Returns what pip wrote down of where a package came from: JSON, as PEP 610 has it.

    Returns:
        None for a package from a registry.

    Raises:
        LookupError: if pip has not installed it.
    """
    try:
        return importlib.metadata.distribution(package).read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError as error:
        raise LookupError(f"{package} was not installed by pip") from error
