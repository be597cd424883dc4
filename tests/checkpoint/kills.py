"""Saves by ranks that are threads, in a process that ends at one of all writes and renames."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import numpy as np

from tfhvd.checkpoint.files import Files
from tfhvd.checkpoint.store import Store
from tfhvd.checkpoint.writer import Job, Writer

RANKS = 2


def arrays_of(step: int, rank: int | None) -> dict[str, np.ndarray]:
    """What a checkpoint has: of all ranks for None, or a rank's own."""
    random = np.random.default_rng([step, 99 if rank is None else rank])
    count = 3 if rank is None else 1
    of_whom = "all" if rank is None else f"rank {rank}"
    return {f"{of_whom} {n}": random.normal(size=(n + 1, 40)) for n in range(count)}


def save(store: Store, step: int, nonce: str, keep: int | None = None) -> Writer:
    """Saves a checkpoint; returns the first rank's writer, which has ended."""
    shared = arrays_of(step, None)
    writers = []
    for rank in reversed(range(RANKS)):
        share = {name: array for n, (name, array) in enumerate(shared.items()) if n % RANKS == rank}
        of_rank = [
            {name: (lambda array=array: array) for name, array in arrays.items()}
            for arrays in (share, arrays_of(step, rank))
        ]
        job = Job(step, nonce, rank, RANKS, *of_rank, {"rank": rank}, {"tfhvd": "1"}, keep)
        writers.append(Writer(store, job))
    for writer in writers[:-1]:
        writer.wait()
        if writer.error is not None:
            writers[-1].cancel()
    writers[-1].wait()
    return writers[-1]


class Ends(Files):
    """Ends the process before, in the middle of, or after its N-th act.

    Args:
        at: 3 times the number of the act, and 0, 1 or 2 for before, in the middle and after.
    """

    def __init__(self, at: int) -> None:
        self._at = at
        self._lock = threading.Lock()
        self._acts = 0

    def _moment(self, act: int, moment: int) -> None:
        if 3 * act + moment == self._at:
            os._exit(9)

    def _begin(self) -> int:
        with self._lock:
            act, self._acts = self._acts, self._acts + 1
        self._moment(act, 0)
        return act

    def write(self, path: Path, content: bytes) -> None:
        act = self._begin()
        path.write_bytes(content[: len(content) // 2])
        self._moment(act, 1)
        super().write(path, content)
        self._moment(act, 2)

    def write_tensors(self, path: Path, tensors: dict) -> None:
        act = self._begin()
        super().write_tensors(path, tensors)
        if 3 * act + 1 == self._at:
            os.truncate(path, path.stat().st_size // 2)
            os._exit(9)
        self._moment(act, 2)

    def sync(self, path: Path) -> None:
        act = self._begin()
        super().sync(path)
        self._moment(act, 2)

    def rename(self, source: Path, target: Path) -> None:
        act = self._begin()
        super().rename(source, target)
        self._moment(act, 2)

    def remove(self, path: Path) -> None:
        act = self._begin()
        inside = sorted(path.iterdir())
        for file in inside[: len(inside) // 2]:
            file.unlink()
        self._moment(act, 1)
        super().remove(path)
        self._moment(act, 2)


def killed(folder: Path, at: int, step: int, keep: int) -> tuple[bool, bool]:
    """Saves a checkpoint in another process, which ends in the middle.

    Returns:
        Whether it was announced, and whether the process has ended before all was done.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            store = Store(folder, Ends(at))
            store.lock()
            store.prepare()
            if save(store, step, f"{at:08x}", keep).error is None:
                os.write(writer, b"!")
        finally:
            os._exit(0 if sys.exc_info()[0] is None else 1)
    os.close(writer)
    announced = os.read(reader, 1) == b"!"
    os.close(reader)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code in (0, 9), code
    return announced, code == 9


def content(store: Store, step: int) -> dict[str, np.ndarray]:
    """Reads all arrays of a checkpoint."""
    from tfhvd.checkpoint import tensors

    manifest = store.verify(step)
    return {entry.name: tensors.read(store.folder(step), entry) for entry in manifest.entries}


def assert_whole(store: Store, step: int) -> None:
    found = content(store, step)
    for rank in (None, *range(RANKS)):
        for name, array in arrays_of(step, rank).items():
            np.testing.assert_array_equal(found.pop(name), array)
    assert not found
