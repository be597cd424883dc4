"""What AutoGraph, which translates the Python of traced functions, does only by private means."""

from __future__ import annotations

import contextlib
import sys

from tfhvd.compat import private
from tfhvd.errors import UnavailableError


def leave_alone(package: str) -> None:
    """Has AutoGraph call a package's functions as they are, in functions that it translates.

    It would translate each of them, too, while a process traces its first function, which takes
    seconds. The list of functions that it leaves alone is not public (TensorFlow 2.16 to 2.21); if
    the list is not found, AutoGraph translates them.

    Args:
        package: its name; its modules' functions are left alone, and no other package's, though its
            functions call them.
    """
    where = "tensorflow.python.autograph.core.config"
    purpose = "trace functions sooner"
    with contextlib.suppress(UnavailableError):
        rule = private.of_module(where, "DoNotConvert", purpose)(package)
        rules = private.of_module(where, "CONVERSION_RULES", purpose)
        sys.modules[where].CONVERSION_RULES = (rule, *rules)  # type: ignore[attr-defined]
