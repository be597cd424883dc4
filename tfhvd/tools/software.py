"""Which versions a process has: of tfhvd, what it builds on, and what the system brings."""

from __future__ import annotations

import dataclasses
import hashlib
import platform
from collections.abc import Mapping

from tfhvd._version import __version__
from tfhvd.compat import installed
from tfhvd.installation import build_info
from tfhvd.runtime import native

_PACKAGES = {"Keras": "keras", "tf_keras": "tf_keras", "numpy": "numpy"}


@dataclasses.dataclass(frozen=True)
class Software:
    """See `facts.Facts`."""

    versions: Mapping[str, str]
    build: str
    problems: tuple[str, ...]
    nccl: str
    has_nccl: bool


def find() -> Software:
    """Asks the installation of this process; TensorFlow is not imported."""
    problems = []
    build = mpi = nccl = ""
    has_nccl = False
    try:
        info = build_info()
        core = native.core_dir() / "libtfhvd_core.so"
        mark = hashlib.sha256(core.read_bytes()).hexdigest()[:8]
        build = f"{info.compiler}; {info.mpi}; TensorFlow {info.tensorflow}; core {mark}"
        backends = {backend.name: backend for backend in info.backends}
        if backends["mpi"].available:
            mpi = backends["mpi"].detail
        else:
            problems.append(backends["mpi"].detail)
        nccl, has_nccl = backends["nccl"].detail, backends["nccl"].available
    except (ImportError, OSError) as error:
        problems.append(str(error))
    tensorflow = installed.tensorflow_distribution()
    try:
        native.check_installed_tensorflow()
    except ImportError as error:
        if str(error) not in problems:
            problems.append(str(error))
    versions = {
        "tfhvd": __version__,
        "Python": platform.python_version(),
        "TensorFlow": tensorflow[1] if tensorflow else "",
        **{name: installed.version_of(package) for name, package in _PACKAGES.items()},
        "MPI": mpi,
        "glibc": " ".join(platform.libc_ver()).strip(),
        "kernel": platform.release(),
    }
    return Software(versions, build, tuple(problems), nccl, has_nccl)
