"""The settings that tfhvd reads from the environment, and what this build of it is made of."""

from __future__ import annotations

import dataclasses
import platform


@dataclasses.dataclass(frozen=True)
class Setting:
    """One row of the table of settings.

    Attributes:
        name: the environment variable.
        horovod_name: the variable of Horovod that is taken as well, None where there is none.
        default: what holds where neither is set.
        range: which values it takes, with their unit.
        meaning: one sentence.
    """

    name: str
    horovod_name: str | None
    default: str
    range: str
    meaning: str


def settings() -> tuple[Setting, ...]:
    """Returns every setting.

    Example:
        >>> [setting.name for setting in settings()][:2]
        ['TFHVD_FUSION_THRESHOLD', 'TFHVD_CYCLE_TIME']
    """
    from tfhvd._library import load_native

    return tuple(
        Setting(f"TFHVD_{row.name}", row.horovod_name, row.default_text, row.range, row.meaning)
        for row in load_native().settings()
    )


def markdown() -> str:
    """Returns the table of settings as the documentation shows it.

    Example:
        >>> print(markdown())
    """
    rows = ["| setting | Horovod's name | default | values | meaning |", "|---|---|---|---|---|"]
    for s in settings():
        horovod = f"`{s.horovod_name}`" if s.horovod_name else ""
        rows.append(f"| `{s.name}` | {horovod} | {s.default} | {s.range} | {s.meaning} |")
    return "\n".join(rows) + "\n"


@dataclasses.dataclass(frozen=True)
class Backend:
    """A means of communication: whether it is there, and why not, or which one it is."""

    name: str
    available: bool
    detail: str


@dataclasses.dataclass(frozen=True)
class BuildInfo:
    """What this build of tfhvd is made of; as text, a table.

    Attributes:
        version: of tfhvd.
        python: the version of the interpreter.
        tensorflow: the version that the operations were built against.
        xla: whether functions with jit_compile=True can have collectives (on CPUs).
        mpi: vendor and version that the mpi backend was built against.
        compiler: what built the libraries.
        backends: in the order in which they are asked.
    """

    version: str
    python: str
    tensorflow: str
    xla: bool
    mpi: str
    compiler: str
    backends: tuple[Backend, ...]

    def __str__(self) -> str:
        lines = [
            f"tfhvd {self.version}",
            f"  Python      {self.python}",
            f"  TensorFlow  {self.tensorflow}",
            f"  XLA         {'on CPUs' if self.xla else 'not compiled: no headers'}",
            f"  MPI         {self.mpi}",
            f"  compiler    {self.compiler}",
            "backends",
        ]
        for backend in self.backends:
            mark = "x" if backend.available else " "
            lines.append(f"  [{mark}] {backend.name:<8} {backend.detail}".rstrip())
        return "\n".join(lines)


def build_info() -> BuildInfo:
    """Returns what this build is made of and which backends are there, or why not.

    Needs no `init`.

    Example:
        >>> print(hvd.build_info())
    """
    from tfhvd._library import build_config, installed_nccl, load_native
    from tfhvd._version import __version__

    built = build_config()
    reports = load_native().report_backends(installed_nccl())
    return BuildInfo(
        version=__version__,
        python=platform.python_version(),
        tensorflow=built.TENSORFLOW_VERSION,
        xla=built.XLA,
        mpi=f"{built.MPI_VENDOR} {built.MPI_VERSION}".strip(),
        compiler=built.COMPILER,
        backends=tuple(Backend(r.name, r.available, r.detail) for r in reports),
    )


PAGE = """\
# Settings

Read from the environment by `hvd.init()`. Where both names are set, tfhvd's counts. A value out of
range is an error; a name that begins with `TFHVD_` and is no setting is reported with the nearest
real one. What must be equal on all ranks is taken from rank 0.

This page is printed by `python -m tfhvd.config`.

"""

if __name__ == "__main__":
    print(PAGE + markdown(), end="")
