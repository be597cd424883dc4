"""A call as bytes: the function and its arguments for the ranks.

cloudpickle writes functions of a main script or a notebook by value. Since 3.1.3 it leaves out the
name of the file that contains a function's code. Without this name a traceback has no source lines,
and AutoGraph, which reads the source, does not convert the loops and branches of a tf.function. So
the name of the file travels with the code.
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
    """Pickles a call for another process, which reads it with `call_of`.

    Raises:
        TypeError: if the call cannot be pickled.
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
    # The paths come first: `sys.path` must be extended before the call is read.
    return pickle.dumps(([str(Path(path or ".").resolve()) for path in sys.path], call))


def call_of(payload: bytes) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """Reads a call that another process has pickled; extends `sys.path` by that process's paths."""
    paths, call = pickle.loads(payload)
    sys.path += [path for path in paths if path not in sys.path]
    func, args, kwargs = pickle.loads(call)
    return func, args, kwargs


def _pickled(call: object) -> bytes:
    import cloudpickle  # here, because the launcher does not need it

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
