"""Tensors in safetensors files: written by the library, and read according to the manifest."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from tfhvd.checkpoint.errors import DamagedError
from tfhvd.checkpoint.files import Files, checksum
from tfhvd.checkpoint.manifest import DataFile, Entry, Manifest

# NumPy's types that the library has; arrays of other types are written as bytes, with one more
# dimension.
_KNOWN = {
    *("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"),
    *("float16", "float32", "float64", "bfloat16"),
}
_BLOCK = 1 << 24  # bytes to read at a time for a check


def write(
    files: Files, path: Path, tensors: Mapping[str, np.ndarray], rank: int | None
) -> tuple[list[Entry], DataFile]:
    """Writes arrays to a file.

    Args:
        files: does the writing.
        path: the file.
        tensors: the arrays by their names.
        rank: the rank to which they belong; None for arrays that all ranks share.

    Returns:
        The manifest's entry of each array, and its entry of the file.

    Raises:
        OSError: if the file cannot be written.
    """
    arrays = {name: _in_order(array) for name, array in tensors.items()}
    files.write_tensors(path, {name: _storable(array) for name, array in arrays.items()})
    with path.open("rb") as file:
        length = file.read(8)
        header = file.read(int.from_bytes(length, "little"))
    offsets = {name: told["data_offsets"] for name, told in json.loads(header).items()}
    begin = len(length) + len(header)
    entries = [
        Entry(
            name=name,
            dtype=array.dtype.name,
            shape=array.shape,
            file=path.name,
            offset=begin + offsets[name][0],
            nbytes=array.nbytes,
            crc32c=_checksum_of(array),
            rank=rank,
        )
        for name, array in arrays.items()
    ]
    size = begin + sum(array.nbytes for array in arrays.values())
    return entries, DataFile(size, begin, checksum(length + header))


def read(folder: Path, entry: Entry) -> np.ndarray:
    """Returns an array of a checkpoint.

    Raises:
        DamagedError: if the array has changed since it was written; with the file.
        OSError: if the file cannot be read.
    """
    path = folder / entry.file
    with path.open("rb") as file:
        file.seek(entry.offset)
        content = file.read(entry.nbytes)
    if len(content) != entry.nbytes or checksum(content) != entry.crc32c:
        raise _damaged(path, entry)
    return np.frombuffer(content, _dtype(entry.dtype)).reshape(entry.shape)


def verify_files(folder: Path, manifest: Manifest) -> None:
    """Checks the sizes and the headers of a checkpoint's files.

    Raises:
        DamagedError: if a file has changed since it was written; with its name.
        OSError: if a file cannot be read.
    """
    for name, told in manifest.files.items():
        path = folder / name
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            raise DamagedError(f"{path} is missing.") from None
        if size != told.size:
            raise DamagedError(f"{path} is damaged: it has {size} bytes, not {told.size}.")
        with path.open("rb") as file:
            if checksum(file.read(told.header)) != told.crc32c:
                raise DamagedError(f"{path} is damaged in its first {told.header} bytes.")


def verify(folder: Path, manifest: Manifest) -> None:
    """Reads all files of a checkpoint, without keeping a tensor in memory.

    Raises:
        DamagedError: if a file has changed since it was written; for the first such file.
        OSError: if a file cannot be read.
    """
    verify_files(folder, manifest)
    for entry in manifest.entries:
        path = folder / entry.file
        found = 0
        for block in _blocks(path, entry):
            found = checksum(block, found)
        if found != entry.crc32c:
            raise _damaged(path, entry)


def shares(sizes: Sequence[int], ranks: int) -> list[int]:
    """Returns for each tensor the rank that writes it, so that all ranks write about equally much.

    Args:
        sizes: the sizes of the tensors in bytes; the same on every rank.
        ranks: the number of ranks.
    """
    loads = [0] * ranks
    writers = [0] * len(sizes)
    for place in sorted(range(len(sizes)), key=lambda place: (-sizes[place], place)):
        writers[place] = loads.index(min(loads))
        loads[writers[place]] += sizes[place]
    return writers


def _blocks(path: Path, entry: Entry) -> Iterator[bytes]:
    with path.open("rb") as file:
        file.seek(entry.offset)
        for begin in range(0, entry.nbytes, _BLOCK):
            yield file.read(min(_BLOCK, entry.nbytes - begin))


def _in_order(array: np.ndarray) -> np.ndarray:
    """Returns an array with bytes in the order of elements; `ascontiguousarray` makes 0-d 1-d."""
    return np.ascontiguousarray(array).reshape(array.shape)


def _bytes_of(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)


def _storable(array: np.ndarray) -> np.ndarray:
    if array.dtype.name in _KNOWN:
        return array
    return _bytes_of(array).reshape(*array.shape, array.dtype.itemsize)


def _checksum_of(array: np.ndarray) -> int:
    return checksum(_bytes_of(array)) if math.prod(array.shape) else 0


def _dtype(name: str) -> np.dtype:
    try:
        return np.dtype(name)
    except TypeError:  # bfloat16 and the like
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))


def _damaged(path: Path, entry: Entry) -> DamagedError:
    return DamagedError(f"{path} is damaged in the tensor '{entry.name}': its checksum differs.")
