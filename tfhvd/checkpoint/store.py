"""A folder of checkpoints: which there are, which are whole, and how one more comes there.

| name in the folder | what it is |
|---|---|
| `step-00001234` | a checkpoint, whole: it came by one rename |
| `saving-00001234-NONCE` | one that is being written, or was when the job ended |
| `replaced-00001234-NONCE` | one that another one of the same step is taking the place of |
| `removed-00001234-NONCE` | one that is being removed |
| `lock` | held by the job that writes here |

Nothing else in the folder is touched.
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
        path: of the folder. It need not be there.
        files: does what is done to the disk.

    Attributes:
        path: of the folder.
        files: likewise.

    Raises:
        CheckpointError: if the path is a file.
    """

    def __init__(self, path: str | os.PathLike[str], files: Files | None = None) -> None:
        self.path = Path(path)
        self.files = files or Files()
        if self.path.exists() and not self.path.is_dir():
            raise CheckpointError(f"{self.path} is a file. Expected: a folder for checkpoints.")

    def steps(self) -> list[int]:
        """Returns the steps of the checkpoints that there are, whole or damaged, ascending."""
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
            DamagedError: if it is not what was written.
            CheckpointError: for one of a later version.
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
        """Reads all of a checkpoint, and returns its manifest.

        Raises:
            DamagedError: for the first file that is not what was written.
        """
        found = self.manifest(step)
        with reading():
            tensors.verify(self.folder(step), found)
        return found

    def newest(self, say: Callable[[str], None], below: int | None = None) -> int | None:
        """Returns the step of the newest checkpoint that is whole; None if there is none.

        Args:
            say: takes a line for each damaged one, with its file.
            below: of which step it is to be earlier.
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
        """Ends what a killed job has left undone, and removes what it has left.

        Raises:
            CheckpointError: if the folder holds something else, or cannot be written.
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
            A descriptor; others may write once it is closed.

        Raises:
            CheckpointError: if another job does, with its name; if it cannot be written.
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
            if owner == me:  # what a `fit` has that an error has ended
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
        """Returns the folder that a checkpoint is written in."""
        return self.path / f"saving-{step:08d}-{nonce}"

    def commit(self, manifest: Manifest, nonce: str, keep: int | None) -> None:
        """Makes a checkpoint of a folder in which all ranks have written, and removes old ones.

        Args:
            manifest: what they have written.
            nonce: by which the folder is named.
            keep: how many checkpoints are left: of this step and those before; None for all.

        Raises:
            OSError: if it cannot be done.
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
    """Makes damages of the errors of reading files."""
    try:
        yield
    except OSError as error:
        raise DamagedError(f"{error.filename} cannot be read: {error.strerror}.") from error


def _cannot_write(path: Path, error: OSError) -> CheckpointError:
    return CheckpointError(f"{path} cannot be written: {error.strerror or error}.")
