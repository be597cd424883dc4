"""RecordFiles: the records of TFRecord files, by number."""

from __future__ import annotations

import bisect
import contextlib
import itertools
import logging
import os
import struct
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from tfhvd.compat import installed
from tfhvd.system import atomic_file

_logger = logging.getLogger("tfhvd")
_HEADER = struct.Struct("<QI")  # of a record: the length of its data, and the checksum of that
_CHECKSUM = struct.Struct("<I")  # of the data, behind them
_INDEX = struct.Struct("<16sQQQ")  # of an index: what it is, size and time of the file, bounds
_MAGIC = b"tfhvd records 1\0"
_MOST_OPEN = 64  # files
_LONG = 1.0  # seconds after which a user should know that an index is being made


class RecordFiles:
    """The records of TFRecord files, as a source for `hvd.data.Batches`: each is a bytes object.

    The files are read once, except the records' data, to find the begin of each record. An index
    with these positions is kept next to each file, under its name and ".index", and is made again
    if the file has another size or time. A record's checksum is compared whenever it is read.

    Needs the package google-crc32c.

    Args:
        paths: the files, in the same order on every rank; not compressed.
        index_folder: the folder of the indexes, under the files' names; None for next to the files.
            If an index cannot be written, each process makes its own.

    Raises:
        ImportError: without google-crc32c.
        FileNotFoundError: for a file that is not there.
        ValueError: for a file that is damaged, with the place. Reading a damaged record raises it,
            too.

    Example:
        >>> records = hvd.data.RecordFiles(sorted(glob.glob("train-*.tfrecord")))
        >>> batches = hvd.data.Batches(records, 256, shuffle=True)
        >>> batches = batches.map(lambda r: tf.io.parse_example(r, features))
    """

    def __init__(
        self,
        paths: Sequence[str | os.PathLike[str]],
        index_folder: str | os.PathLike[str] | None = None,
    ) -> None:
        self._checksum = _checksums()
        self._paths = [Path(path) for path in paths]
        folder = None if index_folder is None else Path(index_folder)
        # The positions of each file's records, and the end of the last one.
        self._bounds = [self._index(path, folder) for path in self._paths]
        self._firsts = [0, *itertools.accumulate(len(bounds) - 1 for bounds in self._bounds)]
        self._open: dict[int, int] = {}  # descriptors by the number of the file; oldest use first
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return self._firsts[-1]

    def __getitem__(self, number: int) -> bytes:
        if not 0 <= number < len(self):
            raise IndexError(f"Received: record {number}. Expected: 0 to {len(self) - 1}.")
        file = bisect.bisect_right(self._firsts, number) - 1
        place = number - self._firsts[file]
        return self._read(file, *self._bounds[file][place : place + 2].tolist())

    def __getitems__(self, numbers: Sequence[int]) -> list[bytes]:
        return [self[number] for number in numbers]

    def __del__(self) -> None:
        for descriptor in getattr(self, "_open", {}).values():
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def _read(self, file: int, begin: int, end: int) -> bytes:
        with self._lock:
            found = os.pread(self._descriptor(file), end - begin, begin)
        data, checksum = found[_HEADER.size : -_CHECKSUM.size], found[-_CHECKSUM.size :]
        if len(found) < end - begin or _CHECKSUM.unpack(checksum) != (self._checksum(data),):
            raise _damaged(self._paths[file], begin, "the checksum of its data is another one")
        return data

    def _descriptor(self, file: int) -> int:
        """Returns the descriptor of a file; the file that was read longest ago is closed for it."""
        descriptor = self._open.pop(file, None)
        if descriptor is None:
            if len(self._open) >= _MOST_OPEN:
                os.close(self._open.pop(next(iter(self._open))))
            descriptor = os.open(self._paths[file], os.O_RDONLY | os.O_CLOEXEC)
        self._open[file] = descriptor  # as the last one that was read
        return descriptor

    def _index(self, path: Path, folder: Path | None) -> np.ndarray:
        """Returns the positions of a file's records, and the end of the last one."""
        status = path.stat()
        known = (_MAGIC, status.st_size, status.st_mtime_ns)
        kept = (folder or path.parent) / f"{path.name}.index"
        with contextlib.suppress(OSError, struct.error):
            content = kept.read_bytes()
            *told, number = _INDEX.unpack_from(content)
            body, checksum = content[: -_CHECKSUM.size], content[-_CHECKSUM.size :]
            if tuple(told) == known and _CHECKSUM.unpack(checksum) == (self._checksum(body),):
                return np.frombuffer(content, "<u8", number, _INDEX.size)
        since = time.monotonic()
        bounds = self._scanned(path, status.st_size)
        body = _INDEX.pack(*known, len(bounds)) + bounds.tobytes()
        try:
            with atomic_file.replacing(kept, writers=True) as unfinished:
                unfinished.write_bytes(body + _CHECKSUM.pack(self._checksum(body)))
        except OSError as error:
            if time.monotonic() - since > _LONG:
                _logger.warning(
                    "The index of %s took %.0f s and cannot be kept (%s): every process makes it "
                    "again. Pass index_folder=<a folder that can be written> to RecordFiles.",
                    path,
                    time.monotonic() - since,
                    error,
                )
        return bounds

    def _scanned(self, path: Path, size: int) -> np.ndarray:
        begins, at = [], 0
        with path.open("rb", buffering=0) as file:
            while at < size:
                header = os.pread(file.fileno(), _HEADER.size, at)
                if len(header) < _HEADER.size:
                    raise _damaged(path, at, "the file ends in it")
                length, checksum = _HEADER.unpack(header)
                if checksum != self._checksum(header[:8]):
                    hint = "; a compressed file is no such file" if at == 0 else ""
                    raise _damaged(path, at, f"the checksum of its length is another one{hint}")
                begins.append(at)
                at += _HEADER.size + length + _CHECKSUM.size
        if at > size:
            raise _damaged(path, begins[-1], "the file ends in it")
        return np.array([*begins, size], "<u8")


def _damaged(path: Path, begin: int, why: str) -> ValueError:
    return ValueError(f"{path} is damaged in the record at byte {begin}: {why}.")


def _checksums() -> Callable[[bytes], int]:
    """Returns a function that gives the checksum of bytes as TFRecord files have it.

    Raises:
        ImportError: without the package that computes it.
    """
    crc32c = installed.require("google_crc32c", "google-crc32c", "hvd.data.RecordFiles")

    def masked(data: bytes) -> int:
        checksum = int(crc32c.value(data))
        return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF

    return masked
