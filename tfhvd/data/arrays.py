"""A part of arrays that belong together, and of lists."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import PurePath
from typing import Any

import numpy as np
import tensorflow as tf

_ROWS_COMPARED = 16
_TENSORS = (tf.Tensor, tf.Variable, tf.RaggedTensor)


def length_of(data: Any) -> int:
    """Returns how many elements there are.

    Raises:
        TypeError: for what is no array, and for no arrays at all.
        ValueError: if arrays that belong together have different lengths.
    """
    lengths = [_length(leaf) for leaf in _leaves(data)]
    if not lengths:
        raise TypeError(f"Received: data={data!r}. Expected: at least one array.")
    if len(set(lengths)) > 1:
        raise ValueError(
            f"Arrays that belong together have the same length. Received: lengths {lengths}. "
            "Expected: equal ones. (The arrays in a list are inputs of a model, not samples.)"
        )
    return lengths[0]


def taken(data: Any, positions: slice | np.ndarray) -> Any:
    """Returns the elements at some positions, in the structure that the data have."""
    return _map(lambda leaf: _taken(leaf, positions), data)


def fingerprint(data: Any) -> int | None:
    """Returns a number that tells data of another order from these; None where it cannot be had.

    It looks at a few rows, and of a list of names at the last part of each: hosts may keep files in
    different places.
    """
    total = 0
    for leaf in _leaves(data):
        parts = _bytes_of_list(leaf) if isinstance(leaf, list) else _bytes_of_rows(leaf)
        for part in parts:
            if part is None:
                return None
            total = zlib.crc32(part, total)
    return total


def _map(apply: Callable[[Any], Any], data: Any) -> Any:
    if isinstance(data, Mapping):
        return {key: _map(apply, value) for key, value in data.items()}
    if isinstance(data, tuple):
        parts = [_map(apply, value) for value in data]
        return type(data)(*parts) if hasattr(data, "_fields") else tuple(parts)
    if isinstance(data, list) and any(map(_is_array, data)):
        return [_map(apply, value) for value in data]
    return None if data is None else apply(data)  # None: no weights beside x and y


def _leaves(data: Any) -> list[Any]:
    found: list[Any] = []
    _map(found.append, data)
    return found


def _is_array(thing: object) -> bool:
    return isinstance(thing, tf.RaggedTensor) or len(getattr(thing, "shape", ())) > 0


def _length(leaf: Any) -> int:
    if isinstance(leaf, tf.RaggedTensor):
        return int(leaf.nrows())
    if isinstance(leaf, list):
        return len(leaf)
    if isinstance(leaf, tf.SparseTensor) or not _is_array(leaf):
        raise TypeError(
            f"Received: data of type {type(leaf).__name__}. Expected: a tf.data.Dataset, a list, "
            "or arrays (of NumPy, pandas, h5py, or tensors), also in tuples and dicts."
        )
    return int(leaf.shape[0])


def _taken(leaf: Any, positions: slice | np.ndarray) -> Any:
    if isinstance(leaf, _TENSORS):
        if isinstance(positions, slice):
            positions = np.arange(*positions.indices(_length(leaf)))
        return tf.gather(leaf, positions)
    if isinstance(leaf, list) and not isinstance(positions, slice):
        return [leaf[i] for i in positions]
    return leaf.iloc[positions] if hasattr(leaf, "iloc") else leaf[positions]


def _bytes_of_list(items: list[Any]) -> Iterable[bytes | None]:
    for item in items:
        if isinstance(item, os.PathLike):
            item = os.fspath(item)
        if isinstance(item, (str, bytes)):
            yield PurePath(os.fsdecode(item)).name.encode(errors="surrogateescape")
        else:  # what `repr` says of other things may be where they are
            yield repr(item).encode() if isinstance(item, (int, float)) else None


def _bytes_of_rows(leaf: Any) -> Iterable[bytes | None]:
    length = _length(leaf)
    step = max(1, length // _ROWS_COMPARED)
    for position in range(0, length, step):
        row = _taken(leaf, slice(position, position + 1))
        row = np.asarray(row.to_list() if isinstance(row, tf.RaggedTensor) else row)
        if row.dtype.kind == "O":  # strings, of TensorFlow or pandas
            flat = row.ravel().tolist()
            known = all(isinstance(item, (str, bytes)) for item in flat)
            yield repr(flat).encode() if known else None
        else:
            yield np.ascontiguousarray(row).tobytes()
