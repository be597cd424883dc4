"""This process's part in the job: to join it, to leave it, and its place in it. No TensorFlow."""

from __future__ import annotations

import atexit
import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from tfhvd import _compat
from tfhvd._launcher_check import check_launcher
from tfhvd._library import installed_nccl
from tfhvd.errors import InvalidSettingError, NotInitializedError, TfhvdError
from tfhvd.launch import notice


class _Membership:
    """What this process knows of the job, and how it leaves when the interpreter ends.

    A child made by fork has no part in the job: the engine's thread stays with the parent.
    """

    def __init__(self) -> None:
        self.topology: Any = None
        # The job's ranks, as numbers of the processes that were started; None for all of them.
        self.started_as: tuple[int, ...] | None = None
        self.forked = False
        self._prepared = False
        self._launcher: notice.Sender | None = None
        self._failed_with = 0  # the exit code of an uncaught exception, 0 where there was none
        self._everyone_knows = True

    def join(self, ranks: tuple[int, ...] | None) -> None:
        if self.forked:
            raise NotInitializedError(_FORKED)
        if "mpi4py" in sys.modules:
            # Whoever uses both must have one MPI in the process: the one that mpi4py chose.
            import mpi4py.MPI  # noqa: F401
        native = self._native()
        try:
            native.init(installed_nccl(), list(ranks or ()))
        except InvalidSettingError:
            self._prepare_for_the_end()  # MPI may have begun, and nobody is lost
            raise
        topology = native.topology()
        try:
            if ranks is None:
                check_launcher(os.environ, topology.size)
        except RuntimeError as error:
            native.shutdown("")
            raise TfhvdError(str(error)) from None
        self.topology = topology
        self.started_as = ranks
        self._prepare_for_the_end()
        if "tensorflow" in sys.modules and native.has_gpus():
            from tfhvd._gpus import choose_gpu

            choose_gpu(topology)

    def leave(self, reason: str) -> None:
        from tfhvd.process_sets import forget_all

        self.topology = None
        self.started_as = None
        forget_all()
        self._native().shutdown(reason)

    def place(self) -> Any:
        if self.topology is None:
            raise NotInitializedError(_FORKED if self.forked else _NOT_INITIALIZED)
        return self.topology

    @staticmethod
    def _native() -> Any:
        from tfhvd._library import load_native

        return load_native()

    def _prepare_for_the_end(self) -> None:
        if self._prepared:
            return
        self._prepared = True
        self._launcher = notice.Sender(os.environ)
        atexit.register(self._at_exit)
        os.register_at_fork(after_in_child=self._in_child)
        previous = sys.excepthook

        def excepthook(
            kind: type[BaseException], error: BaseException, trace: TracebackType | None
        ) -> None:
            previous(kind, error, trace)
            if not _is_interactive():
                self._on_uncaught(kind, error)

        sys.excepthook = excepthook

    def _in_child(self) -> None:
        self.forked = True
        self.topology = None

    def _on_uncaught(self, kind: type[BaseException], error: BaseException) -> None:
        """Tells the others at once, for threads of this process may go on for long."""
        if self.topology is None:
            return
        self._failed_with = 130 if issubclass(kind, KeyboardInterrupt) else 1
        reason = traceback.format_exception_only(kind, error)[-1].strip()
        self._tell_launcher()
        try:
            self.leave(reason)
        except TfhvdError:
            self._everyone_knows = False

    def _tell_launcher(self) -> None:
        """Says, before the other ranks can hear of it, whether it is one of them that failed."""
        assert self._launcher is not None
        try:
            self._native().check_health()
            self._launcher.leave(follows=False)
        except TfhvdError:
            self._launcher.leave(follows=True)

    def _at_exit(self) -> None:
        if self.forked:
            return
        native = self._native()
        try:
            if self.topology is not None:
                self._tell_launcher()
                native.check_health()
                self.leave("")
            if self._everyone_knows:
                native.finalize()
                return
        except TfhvdError as error:
            if not self._failed_with:
                print(f"tfhvd: the job ended badly: {error}", file=sys.stderr)
        # A peer is lost or does not answer, so that MPI cannot be ended in order; it could hang.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(self._failed_with or 1)


_NOT_INITIALIZED = "tfhvd has not been initialized. Call hvd.init() first."
_FORKED = (
    "This process was forked from one that had called hvd.init(), and has no part in the job. Use "
    "tfhvd in the parent, or start the process with multiprocessing.get_context('spawn')."
)
_membership = _Membership()


def _is_interactive() -> bool:
    """Whether the interpreter goes on after an uncaught exception."""
    return hasattr(sys, "ps1") or bool(sys.flags.interactive)


def init(comm: Any = None, process_sets: Sequence[Any] | str | None = None) -> None:
    """Meets the other ranks of the job and starts the engine.

    Every rank calls it, before anything else. A process that nobody gave a rank to is a job of
    size 1. Calling it again does nothing; after `shutdown` it starts anew. Settings are read from
    the environment: see `tfhvd.config.settings`.

    With `comm` the job is made of some of the processes that were started together. They are
    numbered anew, in the order that `comm` has, and `rank`, `size`, `local_rank` and all else count
    them only. Processes that are in no `comm` do not call `init`; several jobs may run side by
    side. On a host with GPUs, leave the choice among them to tfhvd then: the local ranks of each
    job count from 0.

    Args:
        comm: None for all processes; or the numbers of those that make up the job, in
            MPI_COMM_WORLD; or an mpi4py communicator of them; or a list of communicators, the first
            of the job, the others of process sets in it.
        process_sets: process sets to register (see `add_process_set`): each a ProcessSet, ranks, or
            an mpi4py communicator; the same ones in the same order on every rank. "dynamic", as in
            Horovod, is the same as None: sets can always be added later.

    Raises:
        TypeError: for a `comm` or `process_sets` that is none of these.
        ValueError: if this process is not in `comm`, `comm` names a process that is not there or
            one twice, or the process takes part in another job already.
        TfhvdError: if the ranks cannot meet, or a setting has a wrong value.

    Example:
        >>> import tfhvd as hvd
        >>> hvd.init()
        >>> print(f"rank {hvd.rank()} of {hvd.size()}")
        rank 0 of 1
    """
    from tfhvd import process_sets as sets

    ranks, of_comm = sets.ranks_and_sets_of(comm)
    wanted = [*of_comm, *_list_of_sets(process_sets)]
    if is_initialized():
        now = _membership.started_as
        if ranks is not None and ranks != (now or tuple(range(size()))):
            raise ValueError(
                f"This process takes part in a job already. Received: comm={comm!r}. Expected: "
                f"None, or the same {'ranks as before' if now is None else list(now)}; or call "
                "hvd.shutdown() first."
            )
        return
    _membership.join(ranks)
    for process_set in wanted:
        sets.add_process_set(process_set)
    if size() > 1 and _compat.imported_keras():
        importlib.import_module("tfhvd.keras")  # So that `fit` says what is not synchronized.


def set_default(setting: str, value: str) -> None:
    """Gives a setting a value for the next `init`, unless the user has given it one."""
    os.environ.setdefault(setting, value)


def started_as() -> tuple[int, ...] | None:
    """Returns the job's ranks as numbers in MPI_COMM_WORLD; None where they are all of it."""
    return _membership.started_as


def _list_of_sets(process_sets: Any) -> list[Any]:
    if process_sets is None or process_sets == "dynamic":
        return []
    if isinstance(process_sets, str) or not isinstance(process_sets, Sequence):
        if hasattr(process_sets, "Get_group"):  # a communicator
            return [process_sets]
        raise TypeError(
            f"Received: process_sets={process_sets!r}. Expected: a list of hvd.ProcessSet, "
            '"dynamic" or None.'
        )
    return list(process_sets)


def native() -> Any:
    """Returns the engine's module, for the other modules of tfhvd."""
    return _membership._native()


def shutdown() -> None:
    """Leaves the job, and waits until every rank has left; `init` may follow.

    Called at the interpreter's end if the program does not. Where nothing was started, does
    nothing.

    Example:
        >>> hvd.shutdown()
        >>> hvd.is_initialized()
        False
    """
    if _membership.topology is not None:
        _membership.leave("")


def is_initialized() -> bool:
    """Returns whether this process takes part in a job: after `init`, before `shutdown`.

    Example:
        >>> if not hvd.is_initialized():
        ...     hvd.init()
    """
    return _membership.topology is not None


def check_running() -> None:
    """Raises NotInitializedError where this process takes part in no job."""
    _membership.place()


def rank() -> int:
    """Returns this process's number in the job, 0 to `size() - 1`.

    Raises:
        NotInitializedError: before `init`.

    Example:
        >>> if hvd.rank() == 0:
        ...     model.save("model.keras")
    """
    return _membership.place().rank


def size() -> int:
    """Returns the number of ranks. Raises NotInitializedError before `init`.

    Example:
        >>> dataset = dataset.shard(hvd.size(), hvd.rank())
    """
    return _membership.place().size


def local_rank() -> int:
    """Returns this process's number on its host. Raises NotInitializedError before `init`.

    Example:
        >>> gpus = tf.config.list_physical_devices("GPU")
        >>> if gpus:
        ...     tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
    """
    return _membership.place().local_rank


def local_size() -> int:
    """Returns the number of ranks on this host. Raises NotInitializedError before `init`.

    Example:
        >>> threads = os.cpu_count() // hvd.local_size()
    """
    return _membership.place().local_size


def cross_rank() -> int:
    """Returns this host's number among the hosts. Raises NotInitializedError before `init`.

    Example:
        >>> if hvd.local_rank() == 0:
        ...     print(f"host {hvd.cross_rank()} is there")
    """
    return _membership.place().cross_rank


def cross_size() -> int:
    """Returns the number of hosts. Raises NotInitializedError before `init`.

    Example:
        >>> hvd.cross_size() * hvd.local_size() == hvd.size()  # where all hosts have as many
        True
    """
    return _membership.place().cross_size


def is_homogeneous() -> bool:
    """Returns whether every host has as many ranks. Raises NotInitializedError before `init`.

    Example:
        >>> hvd.is_homogeneous()
        True
    """
    return _membership.place().homogeneous
