"""Facts about this installation: its build and its backends; also by Horovod's functions.

The module is not called `build_info`, because it would then hide the function `tfhvd.build_info`.
"""

from __future__ import annotations

import dataclasses
import platform
import re

from tfhvd._version import __version__
from tfhvd.compat import installed
from tfhvd.job import process
from tfhvd.runtime import builds
from tfhvd.runtime.native import build_config, built_ops, installed_nccl, load_native


@dataclasses.dataclass(frozen=True)
class Backend:
    """A means of communication: whether it is available; `detail` says which one, or why not."""

    name: str
    available: bool
    detail: str


@dataclasses.dataclass(frozen=True)
class BuildInfo:
    """The facts about this build of tfhvd; as text, a table.

    Attributes:
        version: the version of tfhvd.
        python: the version of the interpreter.
        tensorflow: the version of TensorFlow for which the operations were built. A binary wheel
            has operations for several versions: then the installed one, or all of them if the
            installed one is not among them.
        xla: whether functions with jit_compile=True can have collectives (on CPUs, NVIDIA's GPUs).
        mpi: the vendor and version of MPI for which the mpi backend was built.
        compiler: the compiler of the libraries.
        backends: the backends, in the order in which tfhvd tries them.
    """

    version: str
    python: str
    tensorflow: str
    xla: bool
    mpi: str
    compiler: str
    backends: tuple[Backend, ...]

    def __str__(self) -> str:
        xla = "on CPUs and NVIDIA's GPUs" if self.xla else "not compiled: no headers"
        lines = [
            f"tfhvd {self.version}",
            f"  Python      {self.python}",
            f"  TensorFlow  {self.tensorflow}",
            f"  XLA         {xla}",
            f"  MPI         {self.mpi}",
            f"  compiler    {self.compiler}",
            "backends",
        ]
        for backend in self.backends:
            mark = "x" if backend.available else " "
            lines.append(f"  [{mark}] {backend.name:<8} {backend.detail}".rstrip())
        return "\n".join(lines)


def build_info() -> BuildInfo:
    """Returns the facts about this build, and which backends are available, or why not.

    It works before `init`.

    Example:
        >>> print(hvd.build_info())
    """
    built, ops = build_config(), built_ops()
    there = installed.tensorflow_distribution()
    chosen = builds.ops_for(there[1], ops) if there else None
    reports = load_native().report_backends(installed_nccl())
    return BuildInfo(
        version=__version__,
        python=platform.python_version(),
        tensorflow=chosen.tensorflow if chosen else builds.served_versions(ops),
        xla=chosen.xla if chosen else all(each.xla for each in ops),
        mpi=f"{built.MPI_VENDOR} {built.MPI_VERSION}".strip(),
        compiler=built.COMPILER,
        backends=tuple(Backend(r.name, r.available, r.detail) for r in reports),
    )


def mpi_built() -> bool:
    """Returns whether tfhvd was built with MPI. It works before `init`.

    Example:
        >>> hvd.mpi_built()
        True
    """
    return _backend("mpi") is not None


def mpi_enabled() -> bool:
    """Returns whether tfhvd was built with MPI and its library loads. It works before `init`.

    Example:
        >>> assert hvd.mpi_enabled(), hvd.build_info()
    """
    return _available("mpi")


def mpi_threads_supported() -> bool:
    """Returns whether the program may use mpi4py or similar packages, too, from any thread.

    This is true if there is an MPI: tfhvd calls MPI from a separate thread and asks for
    MPI_THREAD_MULTIPLE, and `init` fails without it.

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
    """Returns the version of the NCCL that tfhvd has found, 0 if there is none.

    tfhvd looks for NCCL when it needs it, not in the build.

    Returns:
        The sum of 10000 times the major, 100 times the minor and the last number: 22703 for 2.27.3.

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
    """Returns whether collectives on CUDA GPUs stay on the GPUs, which needs NCCL.

    Example:
        >>> hvd.cuda_built()
        False
    """
    return nccl_built() > 0


def rocm_built() -> bool:
    """Returns False: tfhvd does not support AMD's GPUs.

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

    It is for scripts that call it; tfhvd does not need it. With a power of two, `Adasum`'s tree of
    ranks is balanced.

    Args:
        num_rank: a whole number.

    Raises:
        TypeError: if it is not a whole number.

    Example:
        >>> hvd.check_num_rank_power_of_2(6)
        False
    """
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


def _backend(name: str) -> Backend | None:
    return next((b for b in build_info().backends if b.name == name), None)


def _available(name: str) -> bool:
    backend = _backend(name)
    return backend is not None and backend.available
