"""A part of arrays that belong together, and of lists."""

from __future__ import annotations

import math
import os
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import PurePath
from typing import Any

import numpy as np
import tensorflow as tf

_BLOCK = 1 << 24  # bytes of a file that are read at once
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
    return mapped(lambda leaf: _taken(leaf, positions), data)


def rows_in_file(array: Any, numbers: np.ndarray) -> np.ndarray:
    """Returns a few rows of a memory map, or of a dataset of h5py, in any order."""
    ascending, places = np.unique(numbers, return_inverse=True)  # as h5py wants them
    return np.asarray(array[ascending])[places]


def fingerprint(data: Any) -> int | None:
    """Returns a number that tells data of another order from these; None if it cannot be had.

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


def mapped(apply: Callable[[Any], Any], data: Any) -> Any:
    """Returns the structure of some arrays, with what `apply` makes of each of them."""
    if isinstance(data, Mapping):
        return {key: mapped(apply, value) for key, value in data.items()}
    if isinstance(data, tuple):
        parts = [mapped(apply, value) for value in data]
        return type(data)(*parts) if hasattr(data, "_fields") else tuple(parts)
    if isinstance(data, list) and any(map(_is_array, data)):
        return [mapped(apply, value) for value in data]
    return None if data is None else apply(data)  # None: no weights with x and y


def _leaves(data: Any) -> list[Any]:
    found: list[Any] = []
    mapped(found.append, data)
    return found


def _is_array(thing: object) -> bool:
    return isinstance(thing, tf.RaggedTensor) or len(getattr(thing, "shape", ())) > 0


def _length(leaf: Any) -> int:
    if isinstance(leaf, tf.RaggedTensor):
        return int(leaf.nrows())
    if isinstance(leaf, list):
        return len(leaf)
    if not _is_array(leaf):
        raise TypeError(
            f"Received: data of type {type(leaf).__name__}. Expected: a tf.data.Dataset, a list, "
            "or arrays (of NumPy, pandas, h5py, SciPy, or tensors), also in tuples and dicts."
        )
    return int(leaf.shape[0])


def _taken(leaf: Any, positions: slice | np.ndarray) -> Any:
    if isinstance(leaf, tf.SparseTensor):
        return _rows_of_sparse(leaf, _numbers(positions, _length(leaf)))
    if isinstance(leaf, _TENSORS):
        return tf.gather(leaf, _numbers(positions, _length(leaf)))
    if hasattr(leaf, "tocsr"):  # of SciPy, whose other formats have no rows
        return leaf.tocsr()[_numbers(positions, _length(leaf))]
    if isinstance(positions, slice):
        return leaf.iloc[positions] if hasattr(leaf, "iloc") else leaf[positions]
    if isinstance(leaf, list):
        return [leaf[i] for i in positions]
    if hasattr(leaf, "read_direct"):
        return _rows_of_file(leaf, positions)
    return leaf.iloc[positions] if hasattr(leaf, "iloc") else leaf[positions]


def _numbers(positions: slice | np.ndarray, length: int) -> np.ndarray:
    return np.arange(length)[positions] if isinstance(positions, slice) else positions


def _rows_of_sparse(leaf: tf.SparseTensor, positions: np.ndarray) -> tf.SparseTensor:
    leaf = tf.sparse.reorder(leaf)
    rows = leaf.indices[:, 0].numpy()
    begins = np.searchsorted(rows, positions, "left")
    counts = np.searchsorted(rows, positions, "right") - begins
    # The entries of each row, one row after the other, and which of the new rows each is in.
    entries = np.repeat(begins - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
    to = np.repeat(np.arange(len(positions)), counts)
    indices = tf.concat([to[:, np.newaxis], tf.gather(leaf.indices, entries)[:, 1:]], 1)
    shape = tf.concat([[len(positions)], leaf.dense_shape[1:]], 0)
    return tf.SparseTensor(indices, tf.gather(leaf.values, entries), shape)


def _rows_of_file(leaf: Any, positions: np.ndarray) -> np.ndarray:
    """Reads an h5py dataset from its begin to its end: h5py takes rows in ascending order only.

    By blocks, since a single row costs h5py as much as a block.
    """
    rows = np.empty((len(positions), *leaf.shape[1:]), leaf.dtype)
    order = np.argsort(positions, kind="stable")
    ascending = positions[order]
    block = max(1, _BLOCK // max(1, rows.itemsize * math.prod(leaf.shape[1:])))
    for begin in range(0, leaf.shape[0], block):
        first, last = np.searchsorted(ascending, [begin, begin + block])
        if first < last:
            rows[order[first:last]] = leaf[begin : begin + block][ascending[first:last] - begin]
    return rows


def _bytes_of_list(items: list[Any]) -> Iterable[bytes | None]:
    for item in items:
        if isinstance(item, os.PathLike):
            item = os.fspath(item)
        if isinstance(item, (str, bytes)):
            yield PurePath(os.fsdecode(item)).name.encode(errors="surrogateescape")
        else:  # `repr` of other objects may contain their address
            yield repr(item).encode() if isinstance(item, (int, float)) else None


def _bytes_of_rows(leaf: Any) -> Iterable[bytes | None]:
    length = _length(leaf)
    positions = np.arange(0, length, max(1, length // _ROWS_COMPARED))
    if isinstance(leaf, tf.SparseTensor):
        leaf, positions = tf.sparse.to_dense(_taken(leaf, positions)), np.arange(len(positions))
    elif hasattr(leaf, "tocsr"):
        leaf, positions = _taken(leaf, positions).toarray(), np.arange(len(positions))
    for position in positions.tolist():
        row = _taken(leaf, slice(position, position + 1))
        row = np.asarray(row.to_list() if isinstance(row, tf.RaggedTensor) else row)
        if row.dtype.kind == "O":  # strings, of TensorFlow or pandas
            flat = row.ravel().tolist()
            known = all(isinstance(item, (str, bytes)) for item in flat)
            yield repr(flat).encode() if known else None
        else:
            yield np.ascontiguousarray(row).tobytes()
