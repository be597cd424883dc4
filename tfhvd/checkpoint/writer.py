"""Writer: one rank's part in the writing of one checkpoint, in a thread during the training.

Ranks communicate only through the folder: each writes its files, and then a small file that lists
them. The first rank waits for all these lists, writes the manifest, and commits.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tfhvd.checkpoint import manifest as manifests
from tfhvd.checkpoint import tensors
from tfhvd.checkpoint.manifest import DataFile, Entry, Manifest, RankPart
from tfhvd.checkpoint.store import Store

_POLL = 0.02  # seconds between two checks of the folder
# Functions that return arrays; the thread calls them, because arrays may be on a device.
Tensors = dict[str, Callable[[], np.ndarray]]


@dataclasses.dataclass(frozen=True)
class Job:
    """The work of one rank for one checkpoint.

    Attributes:
        step: the number of the checkpoint.
        nonce: a text that is the same on all ranks, and different in every attempt.
        rank: the number of this process among those that write.
        ranks: the number of processes that write.
        shared: this rank's share of the tensors that all ranks have.
        own: the tensors of this rank.
        values: the values that are not tensors.
        versions: the versions of packages.
        keep: how many checkpoints to keep.
    """

    step: int
    nonce: str
    rank: int
    ranks: int
    shared: Tensors
    own: Tensors
    values: dict[str, Any]
    versions: dict[str, str]
    keep: int | None


class Cancelled(Exception):  # noqa: N818 (nothing is wrong here)
    """Another rank has failed to write."""


class Writer:
    """A thread that writes one rank's part of a checkpoint; the constructor starts it.

    Args:
        store: the folder of checkpoints.
        job: the work; the thread removes its tensors when it fetches them.
        say: takes a line at once if the writing fails; None for no line.

    Attributes:
        error: the reason of a failure; None without a failure so far.
        wrote: an event for when this rank's files are written, or have failed.
    """

    def __init__(self, store: Store, job: Job, say: Callable[[str], None] | None = None) -> None:
        self.error: BaseException | None = None
        self.wrote = threading.Event()
        self._store, self._job, self._say = store, job, say
        self._cancelled = threading.Event()
        # A daemon, so that it does not delay the end of the process: `Store.prepare` removes an
        # unfinished checkpoint.
        self._thread = threading.Thread(target=self._run, name="tfhvd-checkpoint", daemon=True)
        self._thread.start()

    @property
    def busy(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def cancel(self) -> None:
        """Ends the thread of the first rank, which may wait for the files of other ranks."""
        self._cancelled.set()
        self._thread.join()

    def wait(self) -> None:
        """Waits for the end of the thread."""
        self._thread.join()

    def _run(self) -> None:
        try:
            part = self._write()
            self.wrote.set()
            if self._job.rank == 0:
                self._commit(part)
        except Exception as error:  # any error of a disk or a device; the training continues
            self.error = error
            if self._say is not None and not isinstance(error, Cancelled):
                self._say(
                    f"The checkpoint of step {self._job.step} could not be written to "
                    f"{self._store.path}: {error}. The training continues."
                )
        finally:
            self.wrote.set()

    def _write(self) -> RankPart:
        job, files = self._job, self._store.files
        folder = self._store.saving(job.step, job.nonce)
        files.make_folder(folder)
        entries: list[Entry] = []
        made: dict[str, DataFile] = {}
        for kind, rank, given in (("shared", None, job.shared), ("own", job.rank, job.own)):
            if given:
                path = folder / f"{kind}-{job.rank:04d}-of-{job.ranks:04d}.safetensors"
                arrays = {name: given.pop(name)() for name in list(given)}
                found, made[path.name] = tensors.write(files, path, arrays, rank)
                entries += found
        part = RankPart(entries, made, job.values)
        if job.rank:
            whole = _part_file(folder, job.rank)
            unfinished = whole.with_suffix(".unfinished")
            files.write(unfinished, manifests.part_to_bytes(part))
            files.rename(unfinished, whole)
        return part

    def _commit(self, own: RankPart) -> None:
        job, folder = self._job, self._store.saving(self._job.step, self._job.nonce)
        parts = [own, *(self._part_of(folder, rank) for rank in range(1, job.ranks))]
        for rank in range(1, job.ranks):
            _part_file(folder, rank).unlink()
        manifest = Manifest(
            step=job.step,
            ranks=job.ranks,
            time=time.time(),
            versions=job.versions,
            entries=[entry for part in parts for entry in part.entries],
            files={name: file for part in parts for name, file in part.files.items()},
            values=[part.values for part in parts],
        )
        self._store.commit(manifest, job.nonce, job.keep)

    def _part_of(self, folder: Path, rank: int) -> RankPart:
        path = _part_file(folder, rank)
        while True:
            try:
                return manifests.part_from_bytes(path.read_bytes())
            except FileNotFoundError:
                if self._cancelled.wait(_POLL):
                    raise Cancelled from None


def _part_file(folder: Path, rank: int) -> Path:
    return folder / f"part-{rank:04d}.json"
