"""Tensors in files of safetensors: written by the library, and read by what the manifest says."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from tfhvd.checkpoint.errors import DamagedError
from tfhvd.checkpoint.files import Files, checksum
from tfhvd.checkpoint.manifest import DataFile, Entry, Manifest

# What the library has for NumPy's arrays; others are written as bytes, one dimension more.
_KNOWN = {
    *("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"),
    *("float16", "float32", "float64", "bfloat16"),
}
_BLOCK = 1 << 24  # bytes that are read at once where they are only looked at


def write(
    files: Files, path: Path, tensors: Mapping[str, np.ndarray], rank: int | None
) -> tuple[list[Entry], DataFile]:
    """Writes arrays to a file.

    Args:
        files: does it.
        path: of the file.
        tensors: the arrays by their names.
        rank: whose own they are; None for what all ranks have.

    Returns:
        What the manifest says of each, and of the file.

    Raises:
        OSError: if it cannot be written.
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
        DamagedError: if it is not what was written; with the file.
        OSError: if it cannot be read.
    """
    path = folder / entry.file
    with path.open("rb") as file:
        file.seek(entry.offset)
        content = file.read(entry.nbytes)
    if len(content) != entry.nbytes or checksum(content) != entry.crc32c:
        raise _damaged(path, entry)
    return np.frombuffer(content, _dtype(entry.dtype)).reshape(entry.shape)


def verify_files(folder: Path, manifest: Manifest) -> None:
    """Looks at the sizes and the heads of a checkpoint's files.

    Raises:
        DamagedError: if one is not what was written; with its name.
        OSError: if one cannot be read.
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
    """Reads all of a checkpoint, and holds no tensor.

    Raises:
        DamagedError: for the first file that is not what was written.
        OSError: if one cannot be read.
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
    """Returns which rank writes each of some tensors, so that all write about as much.

    Args:
        sizes: of the tensors, in bytes; the same on every rank.
        ranks: how many there are.
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
    """Returns an array whose bytes are in the order of its elements; NumPy's own makes 0-d 1-d."""
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
