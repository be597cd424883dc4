"""Store: a folder of checkpoints. It lists and verifies them, and adds and removes them.

| name in the folder | meaning |
|---|---|
| `step-00001234` | a complete checkpoint, made by one rename |
| `saving-00001234-NONCE` | a checkpoint that is being written, or was when the job ended |
| `replaced-00001234-NONCE` | a checkpoint that a new one of the same step is replacing |
| `removed-00001234-NONCE` | a checkpoint that is being removed |
| `lock` | a file that the job which writes here has locked |

A store does not touch any other name in the folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

from tfhvd.checkpoint import manifest as manifests
from tfhvd.checkpoint import tensors
from tfhvd.checkpoint.errors import CheckpointError, DamagedError
from tfhvd.checkpoint.files import Files
from tfhvd.checkpoint.manifest import Manifest

_STEP = re.compile(r"step-(\d{8,})")
_OURS = re.compile(r"(saving|replaced|removed)-(\d{8,})-[0-9a-f]{8}")


def name_of(step: int) -> str:
    """Returns the name of a checkpoint's folder."""
    return f"step-{step:08d}"


class Store:
    """A folder of checkpoints.

    Args:
        path: the folder, which need not exist.
        files: does all writing to the disk.

    Attributes:
        path: the folder.
        files: as given.

    Raises:
        CheckpointError: if the path is a file.
    """

    def __init__(self, path: str | os.PathLike[str], files: Files | None = None) -> None:
        self.path = Path(path)
        self.files = files or Files()
        if self.path.exists() and not self.path.is_dir():
            raise CheckpointError(f"{self.path} is a file. Expected: a folder for checkpoints.")

    def steps(self) -> list[int]:
        """Returns the steps of all checkpoints, complete or damaged, in ascending order."""
        try:
            names = [path.name for path in self.path.iterdir()]
        except FileNotFoundError:
            return []
        return sorted(int(match[1]) for match in map(_STEP.fullmatch, names) if match)

    def folder(self, step: int) -> Path:
        """Returns the folder of a checkpoint."""
        return self.path / name_of(step)

    def manifest(self, step: int) -> Manifest:
        """Reads the manifest of a checkpoint.

        Raises:
            DamagedError: if the manifest has changed since it was written.
            CheckpointError: if the checkpoint is of a later version.
        """
        path = self.folder(step) / manifests.NAME
        try:
            content = path.read_bytes()
        except OSError as error:
            raise DamagedError(f"{path} cannot be read: {error.strerror}.") from None
        found = manifests.from_bytes(content, path)
        if found.step != step:
            raise DamagedError(f"{path} is of step {found.step}.")
        return found

    def verify(self, step: int) -> Manifest:
        """Reads all files of a checkpoint; returns its manifest.

        Raises:
            DamagedError: if a file has changed since it was written; for the first such file.
        """
        found = self.manifest(step)
        with reading():
            tensors.verify(self.folder(step), found)
        return found

    def newest(self, say: Callable[[str], None], below: int | None = None) -> int | None:
        """Returns the step of the newest complete checkpoint; None if there is none.

        Args:
            say: takes a line for each damaged checkpoint, with its file.
            below: the step before which it must be; None for any step.
        """
        for step in reversed(self.steps()):
            if below is not None and step >= below:
                continue
            try:
                self.verify(step)
            except DamagedError as error:
                say(str(error))
                continue
            return step
        return None

    def prepare(self) -> None:
        """Restores a checkpoint that a killed job did not finish to replace; removes its leftovers.

        Raises:
            CheckpointError: if the folder has other files and no checkpoint, or cannot be written.
        """
        try:
            names = sorted(path.name for path in self.path.iterdir())
            ours = {name: _OURS.fullmatch(name) for name in names}
            strange = [n for n in names if n != "lock" and not (_STEP.fullmatch(n) or ours[n])]
            if strange and len(strange) == len(set(names) - {"lock"}):
                raise CheckpointError(
                    f"{self.path} has no checkpoints, and other things in it, such as "
                    f"{strange[0]}. Expected: a folder of checkpoints, or a new one."
                )
            for name, match in ours.items():
                if match is None:
                    continue
                whole = self.path / name_of(int(match[2]))
                if match[1] == "replaced" and not whole.exists():
                    self.files.rename(self.path / name, whole)
                else:
                    self.files.remove(self.path / name)
        except OSError as error:
            raise _cannot_write(self.path, error) from error

    def lock(self) -> int:
        """Makes the folder, and keeps other processes from writing there.

        Returns:
            A descriptor; other processes may write when it is closed.

        Raises:
            CheckpointError: if another job writes there, with its name; or if the folder cannot be
                written.
        """
        path = self.path / "lock"
        me = f"process {os.getpid()} on {socket.gethostname()}"
        try:
            self.files.make_folder(self.path)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise _cannot_write(self.path, error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(descriptor, 1000, 0).decode(errors="replace")
            if owner == me:  # a `fit` of this process that ended by an error still has the lock
                return descriptor
            os.close(descriptor)
            raise CheckpointError(
                f"{self.path} is written by {owner or 'another job'}. Give each job a folder."
            ) from None
        except OSError:  # a file system without locks
            return descriptor
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, me.encode(), 0)
        return descriptor

    def saving(self, step: int, nonce: str) -> Path:
        """Returns the folder in which a checkpoint is written."""
        return self.path / f"saving-{step:08d}-{nonce}"

    def commit(self, manifest: Manifest, nonce: str, keep: int | None) -> None:
        """Turns the folder that all ranks have written into a checkpoint; removes old checkpoints.

        Args:
            manifest: the contents that the ranks have written.
            nonce: the nonce in the name of the folder.
            keep: how many checkpoints to keep, up to this step; None for all.

        Raises:
            OSError: if the disk fails.
        """
        folder, target = self.saving(manifest.step, nonce), self.folder(manifest.step)
        self.files.write(folder / manifests.NAME, manifests.to_bytes(manifest))
        self.files.sync(folder)
        replaced = self.path / f"replaced-{manifest.step:08d}-{nonce}"
        if target.exists():
            self.files.rename(target, replaced)
        self.files.rename(folder, target)
        if replaced.exists():
            self.files.remove(replaced)
        if keep is not None:
            self._remove_old(manifest.step, nonce, keep)

    def _remove_old(self, step: int, nonce: str, keep: int) -> None:
        until = [other for other in self.steps() if other <= step]
        for old in until[:-keep]:
            removed = self.path / f"removed-{old:08d}-{nonce}"
            self.files.rename(self.folder(old), removed)
            self.files.remove(removed)


@contextlib.contextmanager
def reading() -> Iterator[None]:
    """Turns OSError in a context into DamagedError."""
    try:
        yield
    except OSError as error:
        raise DamagedError(f"{error.filename} cannot be read: {error.strerror}.") from error


def _cannot_write(path: Path, error: OSError) -> CheckpointError:
    return CheckpointError(f"{path} cannot be written: {error.strerror or error}.")
