"""Private parts of AutoGraph, which translates the Python of traced functions."""

from __future__ import annotations

import contextlib
import sys

from tfhvd.compat import private
from tfhvd.errors import UnavailableError


def leave_alone(package: str) -> None:
    """Makes AutoGraph call the functions of a package without translating them.

    Otherwise AutoGraph would translate each of them while a process traces its first function,
    which takes seconds. AutoGraph's list of excluded packages is not public (TensorFlow 2.16 to
    2.21); if the list is not found, AutoGraph translates the functions.

    Args:
        package: the name of the package. Functions of other packages are still translated, also if
            functions of this package call them.
    """
    where = "tensorflow.python.autograph.core.config"
    purpose = "trace functions sooner"
    with contextlib.suppress(UnavailableError):
        rule = private.of_module(where, "DoNotConvert", purpose)(package)
        rules = private.of_module(where, "CONVERSION_RULES", purpose)
        sys.modules[where].CONVERSION_RULES = (rule, *rules)  # type: ignore[attr-defined]
