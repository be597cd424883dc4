"""Chooses the library of operations for a version of TensorFlow. Pure; nothing is imported.

TensorFlow does not keep its C++ interface stable between minor versions. A build from source has
one library, for the TensorFlow that was installed; a binary wheel has one for each minor version.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class Ops:
    """A library of operations.

    Attributes:
        tensorflow: the version of TensorFlow that it was compiled against.
        xla: whether collectives can be compiled with XLA (on CPUs).
        file: its file name in the folder of the native libraries.
    """

    tensorflow: str
    xla: bool
    file: str


def minor_of(version: str) -> str:
    """Returns the part of a version that a library of operations depends on.

    Example:
        >>> minor_of("2.21.0")
        '2.21'
    """
    return ".".join(version.split(".")[:2])


def ops_for(version: str, built: Sequence[Ops]) -> Ops | None:
    """Returns the library for a version of TensorFlow; None if this build has none."""
    return next((ops for ops in built if minor_of(ops.tensorflow) == minor_of(version)), None)


def served_versions(built: Sequence[Ops]) -> str:
    """Returns the supported versions of TensorFlow, for a message.

    Example:
        >>> served_versions([Ops("2.21.0", True, "libtfhvd_tf.so")])
        '2.21.0'
    """
    if len(built) == 1:
        return built[0].tensorflow
    return f"{minor_of(built[0].tensorflow)} to {minor_of(built[-1].tensorflow)}"


def replacement(distribution: str, built: Sequence[Ops]) -> str:
    """Returns the command that replaces a TensorFlow by one that a binary wheel supports.

    Args:
        distribution: the name with which the TensorFlow was installed; pip would install another
            distribution over it.
        built: the libraries of the wheel, with the newest TensorFlow last.

    Example:
        >>> replacement("tensorflow-cpu", [Ops("2.16.2", False, ""), Ops("2.21.0", True, "")])
        "pip install 'tensorflow-cpu>=2.16,<2.22' (or the same with uv: uv pip install ...)"
    """
    first, last = minor_of(built[0].tensorflow), minor_of(built[-1].tensorflow)
    major, minor = map(int, last.split("."))
    versions = f"'{distribution}>={first},<{major}.{minor + 1}'"
    return f"pip install {versions} (or the same with uv: uv pip install ...)"
