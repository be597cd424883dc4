"""A call as bytes: how a function and its arguments get to the ranks.

cloudpickle writes functions of a main script or a notebook by value. From 3.1.3 on it leaves out
which file a function's code is from. A traceback then has no source lines, and AutoGraph, which
reads the source, leaves a tf.function's loops and branches as they are; so the file's name travels
beside the code.
"""

from __future__ import annotations

import io
import pickle
import sys
import types
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar


def payload_of(
    func: Callable[..., Any], args: Sequence[object], kwargs: Mapping[str, object]
) -> bytes:
    """Pickles a call for another process, which reads it by `call_of`.

    Raises:
        TypeError: if it cannot be pickled.
    """
    if not callable(func):
        raise TypeError(f"Received: func={func!r}. Expected: a function.")
    try:
        call = _pickled((func, tuple(args), dict(kwargs)))
    except Exception as error:
        raise TypeError(
            f"tfhvd.run cannot pickle the function or its arguments ({error}); pass what "
            "cloudpickle can write, and make sessions, models and files within the function."
        ) from error
    # The paths first: they must be set before the call is read.
    return pickle.dumps(([str(Path(path or ".").resolve()) for path in sys.path], call))


def call_of(payload: bytes) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """Reads a call that another process has pickled, with what that one finds on its `sys.path`."""
    paths, call = pickle.loads(payload)
    sys.path += [path for path in paths if path not in sys.path]
    func, args, kwargs = pickle.loads(call)
    return func, args, kwargs


def _pickled(call: object) -> bytes:
    import cloudpickle  # Here, so that the launcher itself needs it not.

    base = cloudpickle.Pickler.dispatch_table

    def reduced(code: types.CodeType) -> tuple[Callable[..., types.CodeType], tuple[Any, ...]]:
        return _code_of_file, (*base[types.CodeType](code), code.co_filename)

    class Pickler(cloudpickle.Pickler):
        dispatch_table: ClassVar[Any] = ChainMap({types.CodeType: reduced}, base)

    buffer = io.BytesIO()
    Pickler(buffer).dump(call)
    return buffer.getvalue()


def _code_of_file(
    make: Callable[..., types.CodeType], args: tuple[Any, ...], file: str
) -> types.CodeType:
    return make(*args).replace(co_filename=file)
