"""The core as a library, and the C++ programs that test it, with or without a sanitizer."""

from __future__ import annotations

from pathlib import Path

from build_tools import find, products
from build_tools import machine as machines
from build_tools.compiler import Link, Unit
from build_tools.machine import Machine

_SANITIZERS = {
    "": (),
    "thread": ("-fsanitize=thread",),
    "address": ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"),
}
# To optimize around the checks for undefined behaviour takes GCC longer than the tests run.
_LEVELS = {"": "-O1", "thread": "-O1", "address": "-Og"}
_MEASURED = ("-O2", "-g1")
_WITH_MPI = "mpi_communicator_bench.cc"  # of tests/perf: the one that calls MPI itself


def core_tests(
    root: Path, build: Path, sanitize: str, machine: Machine
) -> tuple[list[Unit], list[Link]]:
    """Describes the core as a library and each tests/core/*.cc as a program linked to it.

    Programs that are not called `*_test` are started under mpirun. They are built where there is an
    MPI, with the core's way to it beside the core, and neither for a sanitizer nor for another
    machine, whose MPI is not here. So are the programs of tests/perf, which measure: beside them,
    but not for a sanitizer.

    Args:
        root: The source tree.
        build: The folder for everything that is made; see also `core_tests_folder`.
        sanitize: "thread", "address" or "" (none).
        machine: What to compile for.

    Raises:
        find.BuildError: There is no compiler.
    """
    compiler, target = machines.find_compiler(machine), find.find_target()
    version = find.compiler_version(compiler)
    out = core_tests_folder(build, sanitize, machine)
    tools = _SANITIZERS[sanitize]
    # Without a sanitizer the core is compiled as for the product, and shares its objects.
    tested = (_LEVELS[sanitize], "-g1", *tools)
    core_flags = [*tested, "-fno-omit-frame-pointer"] if sanitize else products.CORE_FLAGS
    objects = out / "objects" if sanitize else machines.objects_folder(build, machine)
    core_objects = objects / products.CORE
    flags = products.common_flags(root)
    core = [
        Unit(
            (source,),
            core_objects / source.with_suffix(".o"),
            (compiler, *flags, *core_flags),
            version,
        )
        for source in products.sources(root)[products.CORE]
    ]
    with_mpi = not sanitize and machine.is_here and find.find_target_mpicc(target) is not None
    pattern = "*.cc" if with_mpi else "*_test.cc"
    measuring = [] if sanitize else sorted((root / "tests" / "perf").glob("*.cc"))
    programs = [
        Unit(
            sources=(path.relative_to(root),),
            object=out / "objects" / f"{path.stem}.o",
            command=(compiler, *flags, "-Werror", *how),
            stamp=version,
            cost=3,
        )
        for path, how in [
            *((path, tested) for path in sorted((root / "tests" / "core").glob(pattern))),
            *((path, _MEASURED) for path in measuring if path.name != _WITH_MPI),
        ]
    ]
    library = out / "libtfhvd_core.so"
    # Threads' variables of a library that is opened late are freed where ThreadSanitizer does not
    # see what orders it, unless they lie with those of the program.
    early = "-ftls-model=initial-exec"
    fakes = [
        Unit(
            sources=(path.relative_to(root),),
            object=out / "objects" / f"{path.stem}.o",
            command=(compiler, *flags, "-Werror", early, *tested),
            stamp=version,
        )
        for path in sorted((root / "tests" / "gpu" / "fakes").glob("fake_*.cc"))
    ]
    # The program too is linked with the sanitizer, whose library must be loaded first.
    links = [products.shared(compiler, library, core, [*tools, "-ldl", "-lrt"])]
    for unit in programs:
        own = (str(library), "-ldl", *tools, *products.run_path("$ORIGIN"))
        link = Link(out / unit.sources[0].stem, (unit.object,), (compiler, "-pthread"), own)
        links.append(link)
    # What programs open in the place of the GPU's driver and of NCCL.
    links.append(products.shared(compiler, out / "libtfhvd_fake_gpu.so", fakes, [*tools, "-lrt"]))
    units = [*programs, *core, *fakes]
    if with_mpi:
        more_units, more_links = _with_mpi(root, out, compiler, library)
        units += more_units
        links += more_links
    return units, links


def _with_mpi(root: Path, out: Path, compiler: str, library: Path) -> tuple[list[Unit], list[Link]]:
    """Describes what calls MPI itself: the core's way to it, and the program that measures that."""
    target = find.find_target()
    mpi = find.find_mpi(target)
    version = find.compiler_version(compiler)
    flags = products.common_flags(root)
    found_by = products.run_path(*products.mpi_run_path(mpi, target, in_place=True))
    way = Unit(
        (products.MPI_API,),
        out / "objects" / "mpi_api.o",
        (compiler, *flags, *products.own_flags(root)[products.MPI], *mpi.compile_flags),
        " ".join([version, *find.mpi_vendor(compiler, mpi)]),
    )
    measuring = Unit(
        (Path("tests", "perf", _WITH_MPI),),
        out / "objects" / f"{Path(_WITH_MPI).stem}.o",
        (compiler, *flags, "-Werror", *_MEASURED, *mpi.compile_flags),
        way.stamp,
    )
    own = (str(library), *mpi.link_flags, *found_by, *products.run_path("$ORIGIN"))
    return [way, measuring], [
        products.shared(compiler, out / "libtfhvd_mpi.so", [way], [*mpi.link_flags, *found_by]),
        Link(out / Path(_WITH_MPI).stem, (measuring.object,), (compiler, "-pthread"), own),
    ]


def core_tests_folder(build: Path, sanitize: str, machine: Machine) -> Path:
    """Returns where the programs of the core's tests are built."""
    return build / (f"core_tests{machine.suffix}" + (f"-{sanitize}" if sanitize else ""))
