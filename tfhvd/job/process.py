"""This process in its job: it joins the job, leaves it, and has a rank in it. No TensorFlow."""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tfhvd.compat import keras as keras_compat
from tfhvd.job.preemption import preemption_watch
from tfhvd.runtime import process_sets as sets
from tfhvd.runtime.elastic.replay import comers
from tfhvd.runtime.hang_monitor import own_watch
from tfhvd.runtime.membership import membership
from tfhvd.telemetry.log import lines
from tfhvd.telemetry.prometheus import exporter

if TYPE_CHECKING:
    from collections.abc import Callable

    from tfhvd.compat.types import Communicator


def init(
    comm: Sequence[int] | Communicator | Sequence[Communicator] | None = None,
    process_sets: Sequence[sets.ProcessSet | Sequence[int] | Communicator] | str | None = None,
) -> None:
    """Connects to the other ranks of the job and starts the engine.

    Every rank calls it, before anything else. A process without a launcher is a job of size 1. A
    rank that joins a running elastic job has its future place at once, and waits at the beginning
    of its training until the others admit it. A second call does nothing; after `shutdown`, `init`
    starts a new job. It reads settings from the environment: see `tfhvd.settings`.

    With `comm`, the job consists of some of the processes that were started together. They get new
    numbers, in the order of `comm`, and `rank`, `size`, `local_rank` and all other functions count
    only them. Processes that are in no `comm` do not call `init`. Several jobs may run at the same
    time. On a host with GPUs, let tfhvd choose the GPUs then, because the local ranks of each job
    count from 0.

    Args:
        comm: None for all processes; or the numbers of the job's processes in MPI_COMM_WORLD; or an
            mpi4py communicator of them; or a list of communicators: the first is of the job, the
            others are of process sets in the job.
        process_sets: process sets to register (see `add_process_set`): each a ProcessSet, ranks, or
            an mpi4py communicator. Every rank must pass the same sets in the same order. "dynamic",
            as in Horovod, means None: sets can always be added later.

    Raises:
        TypeError: for a `comm` or `process_sets` of another type.
        ValueError: if this process is not in `comm`, if `comm` names a missing process or a process
            twice, or if the process takes part in another job already.
        TfhvdError: if the ranks cannot connect, or a setting has a wrong value.

    Example:
        >>> import tfhvd as hvd
        >>> hvd.init()
        >>> print(f"rank {hvd.rank()} of {hvd.size()}")
        rank 0 of 1
    """
    ranks, of_comm = sets.ranks_and_sets_of(comm)
    wanted = [*of_comm, *_list_of_sets(process_sets)]
    if is_initialized():
        now = membership.started_as
        if ranks is not None and ranks != (now or tuple(range(size()))):
            raise ValueError(
                f"This process takes part in a job already. Received: comm={comm!r}. Expected: "
                f"None, or the same {'ranks as before' if now is None else list(now)}; or call "
                "hvd.shutdown() first."
            )
        return
    try:
        membership.join(ranks, own_watch.listen())
    except Exception:
        own_watch.stop()
        raise
    for process_set in wanted:
        sets.add_process_set(process_set)
    if sets.has_peers() and keras_compat.imported_keras():
        importlib.import_module("tfhvd.keras")  # `fit` then reports missing synchronization.


def set_default(setting: str, value: str) -> None:
    """Gives a setting a value for the next `init`, unless the user has set it."""
    os.environ.setdefault(setting, value)


def _start_beside() -> None:
    """Starts the threads that run during the training, and the prefix of log lines."""
    lines.start()
    exporter.start()
    own_watch.start()
    preemption_watch.start()


membership.at_taking_part(_start_beside)


def _list_of_sets(process_sets: object) -> list[sets.ProcessSet | Sequence[int] | Communicator]:
    if process_sets is None or process_sets == "dynamic":
        return []
    if isinstance(process_sets, str) or not isinstance(process_sets, Sequence):
        if sets.is_communicator(process_sets):
            return [process_sets]
        raise TypeError(
            f"Received: process_sets={process_sets!r}. Expected: a list of hvd.ProcessSet, "
            '"dynamic" or None.'
        )
    return list(process_sets)


def shutdown() -> None:
    """Leaves the job, and waits until every rank has left; `init` may follow.

    tfhvd calls it at the interpreter's end if the program does not. Outside a job it does nothing.

    Example:
        >>> hvd.shutdown()
        >>> hvd.is_initialized()
        False
    """
    if membership.topology is not None:
        membership.leave("")


def is_initialized() -> bool:
    """Returns whether this process takes part in a job: after `init`, before `shutdown`.

    Example:
        >>> if not hvd.is_initialized():
        ...     hvd.init()
    """
    return membership.topology is not None


def is_one_of_several() -> bool:
    """Returns whether this process takes part in a job with other ranks, or may later."""
    return is_initialized() and sets.has_peers()


def end_if_failed() -> None:
    """Ends this process at once if an uncaught exception has ended its program."""
    membership.departure.end_if_failed()


def on_membership_change(function: Callable[[], object]) -> None:
    """Registers a function that is called when ranks of an elastic job have failed or joined.

    The job must be one of `tfhvdrun --elastic`. During the call, `rank()`, `size()` and similar
    functions count the present ranks. The function is called in a separate thread, during the
    training, and must not call collectives.

    Args:
        function: a function without arguments. Its exceptions are logged, and end nothing.

    `on_membership_change` raises nothing, and may be called before `init`.

    Example:
        >>> hvd.on_membership_change(lambda: print(f"{hvd.size()} ranks go on"))
    """
    membership.at_change(function)


def check_running() -> None:
    """Raises NotInitializedError if this process takes part in no job."""
    membership.check()


def take_part() -> None:
    """Takes part in a collective: a joining rank waits for its admission.

    Raises:
        NotInitializedError: if this process takes part in no job.
    """
    comers.take_part()


def rank() -> int:
    """Returns this process's number in the job, 0 to `size() - 1`.

    Raises:
        NotInitializedError: before `init`.

    Example:
        >>> if hvd.rank() == 0:
        ...     model.save("model.keras")
    """
    return membership.current_topology().rank


def size() -> int:
    """Returns the number of ranks. Raises NotInitializedError before `init`.

    Example:
        >>> dataset = dataset.shard(hvd.size(), hvd.rank())
    """
    return membership.current_topology().size


def local_rank() -> int:
    """Returns this process's number on its host. Raises NotInitializedError before `init`.

    Example:
        >>> gpus = tf.config.list_physical_devices("GPU")
        >>> if gpus:
        ...     tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
    """
    return membership.current_topology().local_rank


def local_size() -> int:
    """Returns the number of ranks on this host. Raises NotInitializedError before `init`.

    Example:
        >>> threads = os.cpu_count() // hvd.local_size()
    """
    return membership.current_topology().local_size


def cross_rank() -> int:
    """Returns this host's number among the hosts. Raises NotInitializedError before `init`.

    Example:
        >>> if hvd.local_rank() == 0:
        ...     print(f"host {hvd.cross_rank()} is there")
    """
    return membership.current_topology().cross_rank


def cross_size() -> int:
    """Returns the number of hosts. Raises NotInitializedError before `init`.

    Example:
        >>> hvd.cross_size() * hvd.local_size() == hvd.size()  # if all hosts have equally many
        True
    """
    return membership.current_topology().cross_size


def is_homogeneous() -> bool:
    """Returns whether all hosts have equally many ranks. Raises NotInitializedError before `init`.

    Example:
        >>> hvd.is_homogeneous()
        True
    """
    return membership.current_topology().homogeneous
