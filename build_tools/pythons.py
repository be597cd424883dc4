"""The Pythons that a binary wheel has an extension for."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
from pathlib import Path

from build_tools import find
from build_tools.machine import Machine

_NAMES = ("EXT_SUFFIX", "py_version_nodot", "MULTIARCH")
_ASKED = "import json, sysconfig; print(json.dumps([sysconfig.get_path('include'), "
_ASKED += f"*map(sysconfig.get_config_var, {_NAMES})]))"


@dataclasses.dataclass(frozen=True)
class Python:
    """A Python that the wheel has an extension for.

    Attributes:
        headers: The folder of Python.h, and before it what that lacks.
        suffix: How its extensions' files end.
        tag: Its name in a wheel's, e.g. "cp311".
        triplet: What it calls the machine that it is for, e.g. "x86_64-linux-gnu".
    """

    headers: tuple[Path, ...]
    suffix: str
    tag: str
    triplet: str


def python_of(interpreter: str) -> Python:
    """Asks an interpreter for what extensions for it are compiled with.

    Raises:
        find.BuildError: It does not answer, or its headers are not there.
    """
    try:
        done = subprocess.run(
            [interpreter, "-c", _ASKED], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise find.BuildError(f"{interpreter} is no Python that can be asked: {error}") from error
    headers, suffix, number, triplet = json.loads(done.stdout)
    if not Path(headers, "Python.h").is_file():
        raise find.BuildError(f"{interpreter} has no headers. Expected: {headers}/Python.h.")
    return Python((Path(headers),), suffix, f"cp{number}", triplet or "")


def for_machine(python: Python, machine: Machine, folder: Path) -> Python:
    """Returns what extensions for that Python are compiled with for a machine.

    Its headers are the same everywhere but for pyconfig.h. Extensions read of that what is the same
    on every 64-bit Linux with glibc; docs/developers/wheel.md has the differences.

    Args:
        python: A Python of this machine.
        machine: The one to compile for.
        folder: Where headers are put that Python lacks for the other machine.
    """
    if machine.is_here:
        return python
    headers = python.headers[0]
    # Debian's pyconfig.h includes that of the machine, by such a name.
    own = headers.parent / python.triplet / headers.name / "pyconfig.h"
    if own.is_file():
        other = folder / machine.triplet / headers.name / "pyconfig.h"
        other.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(own, other)
    return dataclasses.replace(
        python,
        headers=(folder, headers),
        suffix=python.suffix.replace(python.triplet, machine.triplet),
        triplet=machine.triplet,
    )
