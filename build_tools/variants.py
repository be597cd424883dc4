"""Which libraries a binary wheel has: those that depend on somebody else's once for each of these.

| library                                | one for each                                    |
|----------------------------------------|-------------------------------------------------|
| _lib/libtfhvd_core.so                  |                                                 |
| _lib/MPI/libtfhvd_mpi.so               | MPI of references.MPIS, with no need of its own |
| _lib/tensorflow-MINOR/libtfhvd_tf.so   | minor version of references.TENSORFLOWS         |
| _native<extension suffix>              | Python                                          |

The sources and flags are those of build_tools/products.py; docs/developers/wheel.md says how the
installed package chooses.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from build_tools import find, old_system, products, pythons, references
from build_tools import machine as machines
from build_tools.compiler import Link, Unit
from build_tools.machine import Machine
from build_tools.pythons import Python


@dataclasses.dataclass(frozen=True)
class Parts:
    """What the libraries are compiled for and against, by the names that they get in the wheel."""

    machine: Machine
    tensorflows: dict[str, find.TensorFlow]
    mpis: dict[str, find.Mpi]
    pythons: list[Python]


def fetch(machine: Machine, cache: Path, tensorflows: list[str], interpreters: list[str]) -> Parts:
    """Returns the parts for these minor versions and Pythons.

    What the cache does not have is fetched.
    """
    headers = cache / machine.name / "pythons"
    return Parts(
        machine,
        {
            f"tensorflow-{minor}": references.tensorflow(minor, machine, cache)
            for minor in tensorflows
        },
        {name: references.mpi(name, machine, cache) for name in references.MPIS},
        [
            pythons.for_machine(pythons.python_of(interpreter), machine, headers)
            for interpreter in interpreters
        ],
    )


def native(root: Path, objects: Path, out: Path, parts: Parts) -> products.Native:
    """Describes the build of all libraries of a binary wheel; as products.native does for one.

    Args:
        root: The source tree.
        objects: The folder for objects, kept between builds, and shared with other builds for the
            same machine.
        out: The folder that holds the package `tfhvd` to fill.
        parts: What to compile for and against.
    """
    import pybind11  # A requirement of the build alone.

    compiler = machines.find_compiler(parts.machine)
    version = find.compiler_version(compiler)
    sources, library = products.sources(root), out / "tfhvd" / "_lib"
    core = library / "libtfhvd_core.so"
    command = (compiler, *products.common_flags(root))
    flags = products.own_flags(root)
    made: list[tuple[list[Unit], Path, list[str]]] = []

    def add(product: str, name: str, paths: list[Path], own: list[str], stamp: str) -> list[Unit]:
        words = (*command, *flags[product], *own)
        return products.units_of(product, paths, objects / name, words, f"{version}{stamp}")

    units = add(products.CORE, products.CORE, sources[products.CORE], [], "")
    made.append((units, core, [products.COMPLETE, "-ldl", "-lrt", *products.run_path("$ORIGIN")]))

    vendors = []
    for name, mpi in parts.mpis.items():
        vendor = " ".join(find.mpi_vendor(compiler, mpi))
        vendors.append(vendor)
        own = list(mpi.compile_flags)
        units = add(products.MPI, f"mpi-{name}", sources[products.MPI], own, f", {vendor}")
        # Its MPI is opened before it, and by whoever opens it: not by a name in here.
        made.append((units, library / name / "libtfhvd_mpi.so", []))

    for name, tensorflow in parts.tensorflows.items():
        paths, own = (
            products.ops_sources(root, tensorflow),
            products.tensorflow_flags(tensorflow),
        )
        stamp = f", TensorFlow {tensorflow.version}"
        units = add(products.TENSORFLOW, f"tf-{name}", paths, own, stamp)
        needs = [products.COMPLETE, str(core), *products.tensorflow_libraries(tensorflow)]
        needs += products.run_path("$ORIGIN/..", "$ORIGIN/../../../tensorflow")
        made.append((units, library / name / "libtfhvd_tf.so", needs))

    for python in parts.pythons:
        own = [f"-isystem{folder}" for folder in (pybind11.get_include(), *python.headers)]
        stamp = f", pybind11 {pybind11.__version__}"
        paths = sources[products.PYTHON]
        units = add(products.PYTHON, f"python-{python.tag}", paths, own, stamp)
        needs = [str(core), *products.run_path("$ORIGIN/_lib")]
        made.append((units, out / "tfhvd" / f"_native{python.suffix}", needs))

    lacks = old_system.lacks(compiler, products.common_flags(root), objects, version)
    system = old_system.link_flags(compiler, objects / "old_system")
    links = [
        old_system.linked(_stripped(products.shared(compiler, output, units, needs)), system, lacks)
        for units, output, needs in made
    ]
    return products.Native(
        units=[lacks, *(unit for units, _, _ in made for unit in units)],
        links=links,
        config=_config_text(parts, vendors, version),
    )


def _stripped(link: Link) -> Link:
    return dataclasses.replace(link, flags=(*link.flags, "-Wl,--strip-all"))


def _config_text(parts: Parts, vendors: list[str], compiler: str) -> str:
    ops = [
        (tensorflow.version, find.has_xla(tensorflow), f"{name}/libtfhvd_tf.so")
        for name, tensorflow in parts.tensorflows.items()
    ]
    return products.config_text(ops, " or ".join(vendors), "", "", compiler, binary=True)
