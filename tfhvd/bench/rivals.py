"""The rivals in a comparison: plain MPI, Horovod, MultiWorkerMirroredStrategy."""

from __future__ import annotations

import importlib
import importlib.util
from types import ModuleType

import numpy as np

from tfhvd.bench.collectives import Collective
from tfhvd.bench.measure import Subject

MPI, HOROVOD, MWMS = "mpi", "horovod", "mwms"
RIVALS = (MPI, HOROVOD, MWMS)
TITLES = {MPI: "MPI", HOROVOD: "Horovod", MWMS: "MultiWorkerMirrored"}


class UnavailableError(Exception):
    """A rival is not available; the text says why, and what to type."""


class PlainMpi:
    """MPI's collectives, each on one buffer, through mpi4py."""

    def __init__(self, size: int) -> None:
        """Finds the job's MPI, which tfhvd has initialized already.

        Raises:
            UnavailableError: if there is no MPI job of `size` ranks, or mpi4py is missing.
        """
        if size == 1:
            raise UnavailableError(
                "one rank needs no MPI. Type: tfhvdrun -np 2 python -m tfhvd.bench"
            )
        try:
            import mpi4py

            mpi4py.rc.initialize = mpi4py.rc.finalize = False  # tfhvd initializes and finalizes
            from mpi4py import MPI as mpi  # noqa: N811
        except (ImportError, RuntimeError) as error:
            raise UnavailableError(f"{error}. Type: pip install mpi4py") from None
        if not mpi.Is_initialized() or mpi.COMM_WORLD.size != size:
            raise UnavailableError("mpi4py found another MPI than the job's. Type: tfhvdrun ...")
        if mpi.Query_thread() != mpi.THREAD_MULTIPLE:
            raise UnavailableError("this MPI must be called from one thread only")
        self._world = mpi.COMM_WORLD.Dup()

    def subject(self, collective: Collective, given: int, dtype: str) -> Subject | None:
        """Returns the collective on `given` elements per rank; None for types that MPI lacks."""
        rank, size = self._world.rank, self._world.size
        try:
            source = np.full(given, rank + 1, np.dtype(dtype))
        except TypeError:  # bfloat16, which numpy does not have
            return None
        if source.dtype == np.float16:
            return None
        received = sum(count for count, _ in collective.gives(given, rank, size))
        target = np.empty(received, source.dtype)
        world = self._world
        calls = {
            "allreduce": lambda: world.Allreduce(source, target),
            "allgather": lambda: world.Allgather(source, target),
            "broadcast": lambda: world.Bcast(source, 0),
            "reducescatter": lambda: world.Reduce_scatter_block(source, target),
            "alltoall": lambda: world.Alltoall(source, target),
        }
        return Subject(TITLES[MPI], calls[collective.name])

    def close(self) -> None:
        """Frees the communicator in the job's MPI."""
        self._world.Free()


def horovod(size: int) -> ModuleType:
    """Returns Horovod's package for TensorFlow, initialized in this job.

    Raises:
        UnavailableError: if it is not installed, or does not find the job.
    """
    try:
        package = importlib.import_module("horovod.tensorflow")
        package.init()
    except Exception as error:  # a broken installation may raise anything
        raise UnavailableError(
            f"{type(error).__name__}: {error}. Horovod's last release needs TensorFlow 2.15 or "
            "older, and tfhvd 2.16 or newer: tests/perf/build_horovod.sh makes an environment for "
            "it, and tests/perf/table.py compares the two"
        ) from None
    if package.allreduce.__module__.startswith("tfhvd"):
        raise UnavailableError("the package horovod is tfhvd itself here (tfhvd.as_horovod)")
    if package.size() != size:
        raise UnavailableError(f"it sees a job of {package.size()} ranks, and there are {size}")
    return package


def mwms_can_run(size: int) -> None:
    """Raises UnavailableError if there is one rank, which has no peer for the strategy."""
    if size == 1:
        raise UnavailableError(
            "one rank alone has nothing to reduce. Type: tfhvdrun -np 2 python -m tfhvd.bench"
        )
