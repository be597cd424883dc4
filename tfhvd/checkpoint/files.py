"""Files: one method for each act on a disk, so that tests can replace each one by a fault."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from tfhvd.checkpoint.errors import CheckpointError
from tfhvd.compat import installed
from tfhvd.system import atomic_file

if TYPE_CHECKING:
    import numpy as np


class Files:
    """The acts on a disk; each is complete on the disk when its method returns.

    Every method raises OSError if it fails.
    """

    def make_folder(self, path: Path) -> None:
        """Makes a folder, and the folders above it, if they do not exist."""
        path.mkdir(parents=True, exist_ok=True)

    def write(self, path: Path, content: bytes) -> None:
        """Writes a file."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        with open(os.open(path, flags, 0o666), "wb") as file:  # noqa: PTH123
            file.write(content)
        self.sync(path)

    def write_tensors(self, path: Path, tensors: Mapping[str, np.ndarray]) -> None:
        """Writes a safetensors file."""
        numpy = require_safetensors()
        try:
            numpy.save_file(dict(tensors), str(path))
        except Exception as error:  # the library has many exceptions
            raise OSError(f"{path}: {error}") from error
        self.sync(path)

    def sync(self, path: Path) -> None:
        """Waits until a file, or the list of files in a folder, is on the disk."""
        atomic_file.sync(path)

    def rename(self, source: Path, target: Path) -> None:
        """Renames a file or a folder within the same folder, atomically."""
        source.rename(target)
        self.sync(target.parent)

    def remove(self, path: Path) -> None:
        """Removes a folder with its contents."""
        shutil.rmtree(path)


def require_safetensors() -> ModuleType:
    """Returns the module that writes NumPy's arrays as safetensors.

    Raises:
        CheckpointError: if the package is not installed.
    """
    return _require("safetensors.numpy", "safetensors")


def checksum(content: bytes | memoryview | np.ndarray, before: int = 0) -> int:
    """Returns the CRC32C of `content`, as a continuation of bytes with the checksum `before`.

    Raises:
        CheckpointError: if the package that computes it is not installed.
    """
    return int(_require("google_crc32c", "google-crc32c").extend(before, content))


def _require(module: str, package: str) -> ModuleType:
    try:
        return installed.require(module, package, "hvd.checkpoint")
    except ImportError as error:
        raise CheckpointError(str(error)) from None
