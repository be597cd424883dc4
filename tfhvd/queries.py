"""What this installation can do, asked as scripts for Horovod ask it; `build_info` says more."""

from __future__ import annotations

import re

from tfhvd import config, process


def mpi_built() -> bool:
    """Returns whether tfhvd was built with MPI. Needs no `init`.

    Example:
        >>> hvd.mpi_built()
        True
    """
    return _backend("mpi") is not None


def mpi_enabled() -> bool:
    """Returns whether MPI can be used here: it was built in, and its library loads. No `init`.

    Example:
        >>> assert hvd.mpi_enabled(), hvd.build_info()
    """
    return _available("mpi")


def mpi_threads_supported() -> bool:
    """Returns whether mpi4py and the like may be used beside tfhvd, from any thread.

    Always so where MPI is there: tfhvd calls MPI from a thread of its own, asks for
    MPI_THREAD_MULTIPLE, and `init` fails where it does not get it.

    Raises:
        NotInitializedError: before `init`.

    Example:
        >>> hvd.init()
        >>> if hvd.mpi_threads_supported():
        ...     from mpi4py import MPI
    """
    process.check_running()
    return _available("mpi")


def gloo_built() -> bool:
    """Returns whether tfhvd was built with Gloo.

    Example:
        >>> hvd.gloo_built()
        False
    """
    return _backend("gloo") is not None


def gloo_enabled() -> bool:
    """Returns whether Gloo can be used here.

    Example:
        >>> hvd.gloo_enabled()
        False
    """
    return _available("gloo")


def nccl_built() -> int:
    """Returns the version of the NCCL that tfhvd has found, 0 where there is none.

    NCCL is looked for when it is needed, not when tfhvd is built.

    Returns:
        10000 times the major, 100 times the minor, and the last number: 22703 for 2.27.3.

    Example:
        >>> hvd.nccl_built() > 0
        False
    """
    backend = _backend("nccl")
    if backend is None or not backend.available:
        return 0
    version = re.search(r"(\d+)\.(\d+)\.(\d+)", backend.detail)
    if version is None:
        return 1
    major, minor, patch = map(int, version.groups())
    return 10000 * major + 100 * minor + patch


def cuda_built() -> bool:
    """Returns whether collectives on CUDA GPUs stay on them: whether there is NCCL.

    Example:
        >>> hvd.cuda_built()
        False
    """
    return nccl_built() > 0


def rocm_built() -> bool:
    """Returns False: tfhvd has no part for AMD's GPUs.

    Example:
        >>> hvd.rocm_built()
        False
    """
    return False


def ccl_built() -> bool:
    """Returns False: tfhvd does not use oneCCL.

    Example:
        >>> hvd.ccl_built()
        False
    """
    return False


def ddl_built() -> bool:
    """Returns False: tfhvd does not use IBM's DDL.

    Example:
        >>> hvd.ddl_built()
        False
    """
    return False


def check_num_rank_power_of_2(num_rank: int) -> bool:
    """Returns whether a number is a power of two: 1, 2, 4, 8, ...

    For scripts that ask: tfhvd itself needs it nowhere. The tree of ranks of `Adasum` is even then.

    Args:
        num_rank: a whole number.

    Raises:
        TypeError: if it is no whole number.

    Example:
        >>> hvd.check_num_rank_power_of_2(6)
        False
    """
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


def _backend(name: str) -> config.Backend | None:
    return next((b for b in config.build_info().backends if b.name == name), None)


def _available(name: str) -> bool:
    backend = _backend(name)
    return backend is not None and backend.available
