"""What is done to a disk, one method an act: tests put a fault in the place of one."""

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
    """Writes files so that they are on the disk when a method returns.

    Every method raises OSError.
    """

    def make_folder(self, path: Path) -> None:
        """Makes a folder, and those above it; nothing if it is there."""
        path.mkdir(parents=True, exist_ok=True)

    def write(self, path: Path, content: bytes) -> None:
        """Writes a file."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        with open(os.open(path, flags, 0o666), "wb") as file:  # noqa: PTH123
            file.write(content)
        self.sync(path)

    def write_tensors(self, path: Path, tensors: Mapping[str, np.ndarray]) -> None:
        """Writes a file of safetensors."""
        numpy = require_safetensors()
        try:
            numpy.save_file(dict(tensors), str(path))
        except Exception as error:  # the library has an exception of its own for every cause
            raise OSError(f"{path}: {error}") from error
        self.sync(path)

    def sync(self, path: Path) -> None:
        """Waits until the disk has a file, or knows which files a folder has."""
        atomic_file.sync(path)

    def rename(self, source: Path, target: Path) -> None:
        """Gives a file or a folder another name in the same folder, at once."""
        source.rename(target)
        self.sync(target.parent)

    def remove(self, path: Path) -> None:
        """Removes a folder with all that is in it."""
        shutil.rmtree(path)


def require_safetensors() -> ModuleType:
    """Returns the module that writes safetensors of NumPy's arrays.

    Raises:
        CheckpointError: without the package.
    """
    return _require("safetensors.numpy", "safetensors")


def checksum(content: bytes | memoryview | np.ndarray, before: int = 0) -> int:
    """Returns the CRC32C of some bytes, behind others with the checksum `before`.

    Raises:
        CheckpointError: without the package that computes it.
    """
    return int(_require("google_crc32c", "google-crc32c").extend(before, content))


def _require(module: str, package: str) -> ModuleType:
    try:
        return installed.require(module, package, "hvd.checkpoint")
    except ImportError as error:
        raise CheckpointError(str(error)) from None
