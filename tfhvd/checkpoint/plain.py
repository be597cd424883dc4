"""Values that are not tensors: the types of JSON, tuples, and small arrays."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

_TUPLE, _ARRAY = "__tuple__", "__array__"


def encoded(value: Any) -> Any:
    """Encodes a value in the types of JSON.

    Raises:
        TypeError: if the value is of another type.
    """
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.generic):
        return encoded(value.item())
    if isinstance(value, (list, tuple)):
        items = [encoded(item) for item in value]
        return items if isinstance(value, list) else {_TUPLE: items}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: encoded(item) for key, item in value.items()}
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufc":
        content = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
        return {_ARRAY: content, "dtype": value.dtype.str, "shape": list(value.shape)}
    raise TypeError(
        f"Received: a value of type {type(value).__name__}. Expected: numbers, texts, None, "
        "NumPy's arrays of numbers, and lists, tuples and dicts of them, with texts as keys."
    )


def decoded(value: Any) -> Any:
    """Decodes a result of `encoded`."""
    if isinstance(value, list):
        return [decoded(item) for item in value]
    if not isinstance(value, dict):
        return value
    if _TUPLE in value:
        return tuple(decoded(item) for item in value[_TUPLE])
    if _ARRAY in value:
        content = np.frombuffer(base64.b64decode(value[_ARRAY]), value["dtype"])
        return content.reshape(value["shape"]).copy()
    return {key: decoded(item) for key, item in value.items()}
