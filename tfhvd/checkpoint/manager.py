"""Manager: saves and restores the state of a training, the same step on all ranks."""

from __future__ import annotations

import functools
import logging
import os
import uuid
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import tensorflow as tf

from tfhvd._version import __version__
from tfhvd.checkpoint import tensors
from tfhvd.checkpoint.contents import Named, State
from tfhvd.checkpoint.errors import CheckpointError
from tfhvd.checkpoint.files import checksum, require_safetensors
from tfhvd.checkpoint.restoring import Found, assign, find
from tfhvd.checkpoint.store import Store
from tfhvd.checkpoint.writer import Job, Writer
from tfhvd.compat import installed
from tfhvd.compat.variables import key_of
from tfhvd.ops import allgather, allgather_object, broadcast_object
from tfhvd.replicas import Comparison, value_of
from tfhvd.runtime.process_sets import ProcessSet, checked_id, global_process_set

if TYPE_CHECKING:
    from tfhvd.compat.types import Variable

_logger = logging.getLogger("tfhvd")
_T = TypeVar("_T")
_IDLE, _BUSY, _FAILED = 0, 1, 2


class Manager:
    """Checkpoints of a training in a folder that all ranks share.

    A checkpoint is either complete or absent, whatever ends the job. Every rank makes a manager
    with the same arguments, and calls its methods at the same steps.

    These objects can be saved: models and optimizers of either Keras, variables and lists of them,
    `hvd.data.Batches` (their position), `tf.random.Generator`, dicts of plain values, and objects
    with two methods, `get_state()`, which returns plain values, and `set_state(value)`. Plain
    values are numbers, texts, None, arrays of NumPy, and lists, tuples and dicts of them. For a
    model the manager saves its weights, its optimizers with their counters, averages of weights and
    loss scale, and the seeds of its layers.

    The ranks compare their tensors, and write those that are equal on all ranks once, a share by
    each rank. Each rank also writes its other tensors. Another number of ranks can restore the
    checkpoint. Rank r then restores the tensors of rank r modulo the number of ranks that saved.
    Seeds are an exception: ranks with higher numbers than those that saved keep their seeds.

    The manager needs the packages safetensors and google-crc32c: `pip install tfhvd[checkpoint]`.

    Args:
        path: the folder, on a file system that all ranks share.
        keep: how many checkpoints to keep, the last ones; None for all.
        process_set: the ranks that train together.

    Attributes:
        committed: the step of the last checkpoint that is known to be complete; None without one.
        skipped: the number of checkpoints that were due while another one was being written.
        failed: the number of checkpoints that could not be written.

    Raises:
        NotInitializedError: before `init`.
        ValueError: if `keep` is below 1.
        CheckpointError: on every rank, if the packages are missing; or if the path is a file, or
            the folder has other files and no checkpoint, cannot be written, is written by another
            job, or is not shared.

    Example:
        >>> manager = hvd.checkpoint.Manager("run", keep=3)
        >>> done = manager.restore({"model": model, "batches": batches}) or 0
        >>> for step, (x, y) in enumerate(batches, done + 1):
        ...     model.train_on_batch(x, y)
        ...     if step % 100 == 0:
        ...         manager.save(step, {"model": model, "batches": batches}, wait=False)
        >>> manager.close()
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        keep: int | None = 3,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        checked_id(process_set)  # raises if this rank is not in the process set
        if keep is not None and keep < 1:
            raise ValueError(f"Received: keep={keep}. Expected: 1 or above, or None for all.")
        self.committed: int | None = None
        self.skipped = 0
        self.failed = 0
        self._keep = keep
        self._ranks = process_set
        self._writer: Writer | None = None
        self._step = 0  # of the checkpoint that the writer writes
        self._lock: int | None = None
        self._nonce = ""
        self._attempts = 0
        self._versions = _versions()
        self._store = self._everywhere(lambda: Store(path))
        self._everywhere(self._prepare)
        self._everywhere(self._look)

    def save(
        self,
        step: int,
        objects: Mapping[str, Any],
        *,
        local: Iterable[Variable] = (),
        wait: bool = True,
    ) -> bool:
        """Saves a checkpoint; all ranks call it after the same step.

        Args:
            step: the number of the checkpoint, 0 or above. It replaces one with the same number.
            objects: the objects to save, by names that you choose.
            local: the variables among them that are different on each rank.
            wait: whether `save` returns only when the checkpoint is complete. Otherwise a thread
                writes it during the training, and the method `wait` reports the result.

        Returns:
            Whether the checkpoint is saved, or with wait=False being saved; the same on every rank.
            False while another checkpoint is being written, and when a rank has called `hvd.join`.

        Raises:
            NotSynchronizedError: on every rank, if variables that must be equal differ between
                ranks; with the names of the variables. Nothing is written.
            CheckpointError: on every rank, with wait=True, if the checkpoint cannot be written.
            TypeError: if an object is of a kind that cannot be saved.
            ValueError: if a model has no variables, or the steps of ranks differ.
        """
        if not self._may_begin(step):
            return False
        state = State(objects, local)
        values = state.values()
        names = [named.name for named in state.variables]
        state.name_as(self._of_first(names, "names"))
        shared, own = self._divided(state.variables, step)
        rank, ranks = self._ranks.rank(), self._ranks.size()
        sizes = [_bytes_of(named.variable) for named in shared]
        writers = tensors.shares(sizes, ranks)
        nonce = checksum(f"{self._nonce} {self._attempts}".encode())
        self._attempts += 1
        job = Job(
            step=step,
            nonce=f"{nonce:08x}",
            rank=rank,
            ranks=ranks,
            shared=_held(named for named, writer in zip(shared, writers) if writer == rank),
            own=_held(own),
            values=values,
            versions=self._versions,
            keep=self._keep,
        )
        self._step = step
        self._writer = Writer(self._store, job, None if wait else _say)
        return self.wait() if wait else True

    def wait(self) -> bool:
        """Waits for the checkpoint that is being written; all ranks call it.

        Returns:
            True: each checkpoint that was begun is complete, if any.

        Raises:
            CheckpointError: on every rank, if the checkpoint could not be written; with the cause.
        """
        writer = self._writer
        if writer is not None:
            writer.wrote.wait()
        self._end_if_failed()
        if self._writer is not None:
            self._writer.wait()
        self._end_if_failed()
        self._note_end()
        return True

    @property
    def busy(self) -> bool:
        """Whether this rank is writing a checkpoint."""
        return self._writer is not None and self._writer.busy

    def restore(
        self, objects: Mapping[str, Any], *, local: Iterable[Variable] = (), strict: bool = True
    ) -> int | None:
        """Restores objects from the newest complete checkpoint; all ranks call it.

        A warning names damaged checkpoints, which stay in the folder.

        Args:
            objects: the objects, by the same names as in `save`.
            local: the local variables, as in `save`.
            strict: whether the checkpoint must have every tensor of the objects, with the same
                shape and type, and no other tensors.

        Returns:
            The step of the checkpoint, the same on every rank; None without a checkpoint.

        Raises:
            CheckpointError: if the checkpoint has other tensors than the objects, with their names;
                if ranks see different checkpoints; if the checkpoint is of a later version.
            TypeError: if an object is of a kind that cannot be saved.
            ValueError: if a model has no variables.
        """
        state = State(objects, local)
        found = self._agreed()
        if found is None:
            return None
        rank = self._ranks.rank()
        self._everywhere(lambda: assign(state, found, rank, strict, _say))
        self.committed = found.manifest.step
        return found.manifest.step

    def close(self) -> None:
        """Waits for a checkpoint that is being written; other jobs may then write to the folder.

        Raises:
            CheckpointError: on every rank, if the checkpoint could not be written.
        """
        try:
            self.wait()
        finally:
            self.__del__()

    def __del__(self) -> None:
        lock, self._lock = getattr(self, "_lock", None), None
        if lock is not None:
            os.close(lock)

    def _prepare(self) -> None:
        require_safetensors()
        checksum(b"")
        if self._ranks.rank() == 0:
            self._lock = self._store.lock()
            self._store.prepare()
            self._nonce = uuid.uuid4().hex
            self._mark().mkdir()

    def _mark(self) -> Path:
        """Returns a folder that exists for a moment, to check that all ranks see it."""
        return self._store.saving(0, self._nonce[:8])

    def _look(self) -> None:
        """Checks that this rank sees the folder that the first rank has made."""
        self._nonce = self._of_first(self._nonce, "nonce")
        seen = self._mark().is_dir()
        allgather(tf.constant([seen]), name="checkpoint/seen", process_set=self._ranks)
        if self._ranks.rank() == 0:
            self._mark().rmdir()
        if not seen:
            raise CheckpointError(
                f"{self._store.path} is not the folder that the first rank has there. Expected: a "
                "folder on a file system that all ranks share."
            )

    def _of_first(self, value: _T, name: str) -> _T:
        """Returns the first rank's value."""
        root = (self._ranks.ranks or [0])[0]
        return broadcast_object(value, root, name=f"checkpoint/{name}", process_set=self._ranks)

    def _may_begin(self, step: int) -> bool:
        writer = self._writer
        own = _IDLE if writer is None else _BUSY if writer.busy else _IDLE
        if writer is not None and writer.wrote.is_set() and writer.error is not None:
            own = _FAILED
        row = tf.constant([[own, step]], tf.int64)
        told = allgather(row, name="checkpoint/begin", process_set=self._ranks).numpy()
        if len(told) < self._ranks.size():
            return False
        if (told[:, 1] != step).any() or step < 0:
            raise ValueError(
                f"Received: step={told[:, 1].tolist()} on the ranks. Expected: the same number on "
                "every rank, 0 or above."
            )
        failed = (told[:, 0] == _FAILED).any()
        if failed and writer is not None and self._ranks.rank() == 0:
            writer.cancel()
            told[0, 0] = _FAILED
        if (told[1:, 0] == _BUSY).any() or (told[0, 0] == _BUSY and not failed):
            self.skipped += 1
            return False
        if failed:
            self._say_failed()
        self._note_end()
        return True

    def _note_end(self) -> None:
        """Drops a writer that has ended; all ranks call it."""
        writer, self._writer = self._writer, None
        if writer is not None and writer.error is None:
            self.committed = self._step

    def _say_failed(self) -> str:
        """Counts a failed checkpoint; returns the reason, the same text on every rank."""
        writer, self._writer = self._writer, None
        error = None if writer is None else writer.error
        own = None if error is None else f"{type(error).__name__}: {error}"
        of_ranks = allgather_object(own, name="checkpoint/failed", process_set=self._ranks)
        causes = [
            f"rank {rank}: {cause}"
            for rank, cause in zip(self._ranks.ranks or range(len(of_ranks)), of_ranks)
            if cause and not cause.startswith("Cancelled")
        ]
        self.failed += 1
        return (
            f"The checkpoint of step {self._step} could not be written to {self._store.path} "
            f"({'; '.join(causes)})."
        )

    def _end_if_failed(self) -> None:
        writer = self._writer
        failed = writer is not None and writer.wrote.is_set() and writer.error is not None
        row = tf.constant([failed])
        told = allgather(row, name="checkpoint/ended", process_set=self._ranks).numpy()
        if not told.any():
            return
        if writer is not None and self._ranks.rank() == 0:
            writer.cancel()
        raise CheckpointError(self._say_failed())

    def _divided(self, variables: list[Named], step: int) -> tuple[list[Named], list[Named]]:
        """Returns the variables that are equal on all ranks, and the other ones."""
        if self._ranks.size() == 1:
            return variables, []
        compared = [named for named in variables if not named.local]
        apart = {key_of(named.variable) for named in compared if not named.equal}
        comparison = Comparison(
            [named.variable for named in compared],
            f"in the checkpoint of step {step}",
            self._ranks,
            name="checkpoint/compare",
        )
        comparison.finish("raise", known=apart)
        differing = comparison.differing()
        shared = [n for n in compared if key_of(n.variable) not in differing]
        keys = {key_of(named.variable) for named in shared}
        return shared, [n for n in variables if key_of(n.variable) not in keys]

    def _agreed(self) -> Found | None:
        """Finds the newest checkpoint that every rank can read completely."""
        below: int | None = None
        while True:
            look = functools.partial(find, self._store, self._ranks.rank(), below, _say)
            found: Found | None = self._everywhere(look)
            own = -1 if found is None else found.manifest.step
            row = tf.constant([own], tf.int64)
            told = allgather(row, name="checkpoint/newest", process_set=self._ranks).numpy()
            least = int(told.min())
            if (told == least).all():
                return found
            if least < 0:
                raise CheckpointError(
                    f"Ranks see different checkpoints in {self._store.path}: the newest ones that "
                    f"are whole are of steps {told.tolist()}, -1 for none. Expected: one folder, "
                    "on a file system that all ranks share."
                )
            below = least + 1

    def _everywhere(self, act: Callable[[], Any]) -> Any:
        """Calls a function on all ranks; raises on all of them if it fails on one."""
        result, error = None, None
        try:
            result = act()
        except (CheckpointError, OSError) as caught:
            error = caught
        told = allgather_object(
            None if error is None else str(error), name="checkpoint/act", process_set=self._ranks
        )
        causes = [cause for cause in told if cause is not None]
        if causes:
            raise CheckpointError(causes[0]) from error
        return result


def _say(text: str) -> None:
    _logger.warning("%s", text)


def _bytes_of(variable: Variable) -> int:
    return int(np.prod(variable.shape)) * tf.as_dtype(variable.dtype).size


def _held(variables: Iterable[Named]) -> dict[str, Callable[[], np.ndarray]]:
    """Keeps the present values: an update of the variable then writes to new memory."""
    return {named.name: value_of(named.variable).numpy for named in variables}


def _versions() -> dict[str, str]:
    packages = ("tensorflow", "keras", "tf_keras", "numpy", "safetensors")
    found = {package: installed.version_of(package) for package in packages}
    found["tensorflow"] = installed.tensorflow_version()
    return {"tfhvd": __version__, **{k: v for k, v in found.items() if v}}
