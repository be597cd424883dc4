"""Prints, as lines NAME=value, what python_configure.bzl asks for, found as setup.py finds it."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from build_tools import find, products


def main() -> None:
    """Prints the facts, or says on stderr what is missing."""
    import pybind11

    target = find.find_target()
    tensorflow, mpi = find.find_tensorflow(target), find.find_mpi(target)
    defines = [flag[2:] for flag in products.tensorflow_flags(tensorflow) if flag.startswith("-D")]
    headers = [flag for flag in mpi.compile_flags if not flag.startswith("-")]
    run_path = [f"-Wl,-rpath,{folder}" for folder in mpi.library_folders]
    facts = {
        "EXTENSION_SUFFIX": sysconfig.get_config_var("EXT_SUFFIX"),
        "PYTHON_HEADERS": find.python_headers(),
        "PYBIND11_HEADERS": pybind11.get_include(),
        "TENSORFLOW": tensorflow.folder,
        "TENSORFLOW_DEFINES": " ".join(defines),
        "MPI_HEADERS": ":".join(headers),
        "MPI_LINK": " ".join([*mpi.link_flags, *run_path]),
    }
    for name, value in facts.items():
        print(f"{name}={value}")


try:
    main()
except (find.BuildError, ImportError) as error:
    sys.exit(f"{error}")
