"""The samples of a source by their numbers, within a pipeline of `tf.data`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from tfhvd.data import arrays


class Rows(Protocol):
    """What samples are taken from.

    Attributes:
        length: how many samples there are.
    """

    length: int

    def take(self, numbers: tf.Tensor) -> Any:
        """Returns the samples with these numbers, in one batch; called in a function."""


def rows_of(source: Any) -> Rows:
    """Returns the rows of a source.

    Raises:
        TypeError: for a source without a length, or without numbered samples.
        ValueError: if arrays that belong together have different lengths.
    """
    if is_numbered(source):
        return _Numbered(source)
    return _Arrays(source)


def is_numbered(source: Any) -> bool:
    """Whether a source gives a sample for `source[i]`, and is no array, list, tuple or dict."""
    if hasattr(source, "__getitems__"):  # of several samples: datasets of Hugging Face
        return True
    structure = isinstance(source, (list, tuple, str, bytes, Mapping))
    known = hasattr(source, "__len__") and hasattr(source, "__getitem__")
    return known and not structure and not hasattr(source, "shape")


class _Arrays:
    """Rows of arrays that belong together.

    Those in memory are gathered by TensorFlow; those in files (memory maps, datasets of h5py) are
    read by Python, a batch at a time.
    """

    def __init__(self, source: Any) -> None:
        self.length = arrays.length_of(source)
        self._source = _tuples(arrays.mapped(_in_memory, source))

    def take(self, numbers: tf.Tensor) -> Any:
        """See Rows."""
        return arrays.mapped(lambda leaf: _taken(leaf, numbers), self._source)


def _tuples(data: Any) -> Any:
    """Returns a structure with tuples for its lists, of which `tf.data` would make one tensor."""
    if isinstance(data, Mapping):
        return {key: _tuples(value) for key, value in data.items()}
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*map(_tuples, data))
    return tuple(map(_tuples, data)) if isinstance(data, (list, tuple)) else data


def _in_memory(leaf: Any) -> Any:
    """Returns an array as a tensor, unless it is in a file."""
    if isinstance(leaf, (tf.SparseTensor, tf.sparse.SparseTensor)) or hasattr(leaf, "tocsr"):
        raise TypeError(
            "Received: a sparse matrix. Expected: a source whose samples are dense, such as "
            "tf.data.Dataset.from_tensor_slices(sparse), or hvd.shard(sparse)."
        )
    if isinstance(leaf, np.memmap) or hasattr(leaf, "read_direct"):
        return leaf
    return leaf if isinstance(leaf, tf.RaggedTensor) else tf.convert_to_tensor(leaf)


def _taken(leaf: Any, numbers: tf.Tensor) -> Any:
    if tf.is_tensor(leaf):  # ragged ones too
        return tf.gather(leaf, numbers)
    spec = tf.TensorSpec((None, *leaf.shape[1:]), leaf.dtype)
    return _by_python(lambda chosen: [arrays.rows_in_file(leaf, chosen)], numbers, [spec])[0]


class _Numbered:
    """What gives a sample for `source[i]`, or a list of them for `source.__getitems__([i, j])`."""

    def __init__(self, source: Any) -> None:
        self.length = len(source)
        self._source = source
        self._example = source[0] if self.length else ()
        self._specs = [
            tf.TensorSpec((None, *tensor.shape), tensor.dtype)
            for tensor in map(tf.convert_to_tensor, _leaves(self._example))
        ]

    def take(self, numbers: tf.Tensor) -> Any:
        """See Rows."""
        found = _by_python(self._stacked, numbers, self._specs)
        return _packed(self._example, iter(found))

    def _stacked(self, numbers: np.ndarray) -> list[np.ndarray]:
        places = numbers.tolist()
        many = getattr(self._source, "__getitems__", None)
        samples = many(places) if many else [self._source[place] for place in places]
        columns = list(zip(*map(_leaves, samples)))
        return [self._column(places, column, i) for i, column in enumerate(columns)]

    def _column(self, places: Sequence[int], values: Sequence[Any], number: int) -> np.ndarray:
        dtype = np.dtype(self._specs[number].dtype.as_numpy_dtype)
        # NumPy's own types of texts and bytes lose zeros at the end.
        kept = object if dtype.kind == "O" else None
        try:
            found = np.stack([np.asarray(value, kept) for value in values])
        except ValueError:
            shapes = {np.shape(value): place for place, value in zip(places, values)}
            raise ValueError(
                "The samples of a batch have one shape. Received: "
                + ", ".join(f"{shape} of sample {place}" for shape, place in shapes.items())
                + ". Expected: equal ones; cut or pad them in the source."
            ) from None
        converted = found.astype(dtype)
        if dtype.kind in "iub" and found.dtype != dtype and (converted != found).any():
            raise ValueError(
                f"The samples have the type of the first one. Received: {dtype.name}, and values "
                f"in samples {list(places)} that it cannot hold. Expected: values of one type, "
                "such as np.int64 or np.float32."
            )
        return converted


def _leaves(sample: Any) -> list[Any]:
    """Returns the values of a sample; a list is one value, as in `tf.data`."""
    if isinstance(sample, Mapping):
        return [leaf for key in sorted(sample) for leaf in _leaves(sample[key])]
    if isinstance(sample, tuple):
        return [leaf for part in sample for leaf in _leaves(part)]
    return [sample]


def _packed(like: Any, values: Any) -> Any:
    if isinstance(like, Mapping):
        return {key: _packed(like[key], values) for key in sorted(like)}
    if isinstance(like, tuple):
        parts = [_packed(part, values) for part in like]
        return type(like)(*parts) if hasattr(like, "_fields") else tuple(parts)
    return next(values)


def _by_python(call: Any, numbers: tf.Tensor, specs: Sequence[tf.TensorSpec]) -> list[tf.Tensor]:
    found = tf.numpy_function(call, [numbers], [spec.dtype for spec in specs])
    for tensor, spec in zip(found, specs):
        tensor.set_shape(spec.shape)
    return list(found)
