"""Which sources make which of tfhvd's native libraries, and with which flags.

| product                    | sources                              | links to              |
|----------------------------|--------------------------------------|-----------------------|
| _lib/libtfhvd_core.so      | every folder of CORE_FOLDERS         | the system            |
| _lib/libtfhvd_mpi.so       | cc/backends/mpi/mpi_api.cc           | MPI                   |
| _lib/libtfhvd_tf.so        | every folder of TENSORFLOW_FOLDERS   | the core, TensorFlow  |
| _native<extension suffix>  | every folder of PYTHON_FOLDERS       | the core              |

The BUILD file says the same to Bazel; tests/test_build.py holds the two together.
"""

from __future__ import annotations

import dataclasses
import os
import shlex
import sysconfig
from pathlib import Path

from build_tools import find
from build_tools.compiler import Link, Unit

CORE_FOLDERS = (
    "base",
    "flow",
    "comm",
    "device",
    "queue",
    "negotiate",
    "fuse",
    "execute",
    "observe",
    "engine",
    "backends/inproc",
    "backends/shm",
    "backends/mpi",
    "backends/staged",
    "backends/nccl",
    "backends/hierarchical",
    "process",
)
TENSORFLOW_FOLDERS = ("tf", "xla")
PYTHON_FOLDERS = ("python",)
# The one file that sees mpi.h; the core opens the library that it makes only in a job of MPI.
MPI_API = Path("cc/backends/mpi/mpi_api.cc")

KERNELS = Path("cc/tf")
# Left out where TensorFlow's headers lack XLA: functions with jit_compile=True have no collectives.
XLA = Path("cc/xla")
# Headers that TensorFlow's own include, and its wheels do not bring.
LACKS = Path("third_party/tensorflow_lacks")

CORE, MPI, TENSORFLOW, PYTHON = "core", "mpi", "tf", "python"
# Contracted, a product and a sum would be rounded once on some processors and twice on others.
_CORE_FLAGS = ["-O3", "-fno-semantic-interposition", "-ffp-contract=off"]
_COST = {CORE: 2, MPI: 2, TENSORFLOW: 30, PYTHON: 10}


def sources(root: Path) -> dict[str, list[Path]]:
    """Returns the sources of each product, relative to `root`, sorted."""

    def of(folders: tuple[str, ...]) -> list[Path]:
        found = [path for folder in folders for path in (root / "cc" / folder).glob("*.cc")]
        return sorted(path.relative_to(root) for path in found)

    return {
        CORE: [path for path in of(CORE_FOLDERS) if path != MPI_API],
        MPI: [MPI_API],
        TENSORFLOW: of(TENSORFLOW_FOLDERS),
        PYTHON: of(PYTHON_FOLDERS),
    }


def common_flags(root: Path) -> list[str]:
    """Returns the flags of every file; $CXXFLAGS comes last."""
    flags = ["-std=c++17", "-fPIC", "-pthread", "-Wall", "-Wextra", f"-I{root}"]
    return flags + shlex.split(os.environ.get("CXXFLAGS", ""))


@dataclasses.dataclass(frozen=True)
class Native:
    """All four products of one installation.

    Attributes:
        units: What to compile.
        links: What to link, in order.
        config: The text of tfhvd/_build_config.py.
    """

    units: list[Unit]
    links: list[Link]
    config: str

    @property
    def outputs(self) -> list[Path]:
        """The libraries."""
        return [link.output for link in self.links]


def output_names() -> dict[str, Path]:
    """Returns where each product lies, relative to the folder that holds the package `tfhvd`."""
    folder = Path("tfhvd/_lib")
    return {
        CORE: folder / "libtfhvd_core.so",
        MPI: folder / "libtfhvd_mpi.so",
        TENSORFLOW: folder / "libtfhvd_tf.so",
        PYTHON: Path(f"tfhvd/_native{sysconfig.get_config_var('EXT_SUFFIX')}"),
    }


def native(root: Path, objects: Path, out: Path, in_place: bool) -> Native:
    """Describes the build of the four products.

    Args:
        root: The source tree.
        objects: The folder for objects, kept between builds.
        out: The folder that holds the package `tfhvd` to fill.
        in_place: Whether the libraries stay there (an editable installation), so that what they
            need is found by absolute path; else it is found relative to the installed library.

    Raises:
        find.BuildError: Something is missing.
    """
    import pybind11  # A requirement of the build alone.

    compiler, target = find.find_compiler(), find.find_target()
    tensorflow, mpi = find.find_tensorflow(target), find.find_mpi(target)
    vendor, mpi_version = find.mpi_vendor(compiler, mpi)
    flags = common_flags(root)
    own_flags = {
        CORE: _CORE_FLAGS,
        MPI: _mpi_flags(mpi),
        TENSORFLOW: ["-O2", *tensorflow_flags(tensorflow), "-isystem", str(root / LACKS)],
        PYTHON: ["-O2", "-fvisibility=hidden"]
        + [f"-isystem{folder}" for folder in (pybind11.get_include(), find.python_headers())],
    }
    version = find.compiler_version(compiler)
    stamps = {
        CORE: version,
        MPI: f"{version}, {vendor} {mpi_version}",
        TENSORFLOW: f"{version}, TensorFlow {tensorflow.version}",
        PYTHON: f"{version}, pybind11 {pybind11.__version__}",
    }
    listed = sources(root)
    if not find.has_xla(tensorflow):
        listed[TENSORFLOW] = [path for path in listed[TENSORFLOW] if XLA not in path.parents]
    units = {
        product: [
            Unit(
                sources=part,
                object=objects / product / _place(part).with_suffix(".o"),
                command=(compiler, *flags, *own_flags[product]),
                stamp=stamps[product],
                cost=_COST[product],
            )
            for part in _compiled_together(listed[product])
        ]
        for product in listed
    }
    links = _links(compiler, units, out, in_place, target, tensorflow, mpi)
    config = _config_text(tensorflow, mpi, vendor, mpi_version, version, target)
    return Native(
        units=[unit for part in units.values() for unit in part], links=links, config=config
    )


def _compiled_together(paths: list[Path]) -> list[tuple[Path, ...]]:
    """Groups what one run of the compiler takes: the kernels' folder, else each file alone.

    To read TensorFlow's headers takes ten times as long as to compile one of our short files with
    kernels. Bazel compiles each alone, which shows that each includes what it uses.
    """
    kernels = tuple(path for path in paths if path.parent == KERNELS)
    others = [(path,) for path in paths if path.parent != KERNELS]
    return ([kernels] if kernels else []) + others


def _place(part: tuple[Path, ...]) -> Path:
    return part[0] if len(part) == 1 else part[0].parent


def _mpi_flags(mpi: find.Mpi) -> list[str]:
    return ["-O2", "-DOMPI_SKIP_MPICXX", "-DMPICH_SKIP_MPICXX", *mpi.compile_flags]


def tensorflow_flags(tensorflow: find.TensorFlow) -> list[str]:
    """Returns the flags that make our code agree with that TensorFlow's."""
    library = tensorflow.folder / "libtensorflow_framework.so.2"
    # Every wheel since 2.16 is built with the new ABI; a distribution's own build may not be.
    new_abi = int(b"__cxx11" in library.read_bytes())
    return [
        f"-D_GLIBCXX_USE_CXX11_ABI={new_abi}",
        "-DEIGEN_MAX_ALIGN_BYTES=64",
        "-isystem",
        str(tensorflow.folder / "include"),
    ]


def _links(
    compiler: str,
    units: dict[str, list[Unit]],
    out: Path,
    in_place: bool,
    target: find.Target | None,
    tensorflow: find.TensorFlow,
    mpi: find.Mpi,
) -> list[Link]:
    names = {product: out / name for product, name in output_names().items()}
    complete = "-Wl,--no-undefined"
    flags = {
        CORE: [complete, "-ldl", "-lrt"],
        MPI: [complete, *mpi.link_flags, *_run_path(*_mpi_run_path(mpi, target, in_place))],
        TENSORFLOW: [
            str(names[CORE]),
            f"-L{tensorflow.folder}",
            "-l:libtensorflow_framework.so.2",
            *(["-l:libtensorflow_cc.so.2"] if find.has_xla(tensorflow) else []),
            *_run_path("$ORIGIN", *_tensorflow_run_path(target, in_place)),
        ],
        PYTHON: [str(names[CORE]), *_run_path("$ORIGIN/_lib")],
    }
    flags[CORE] += _run_path("$ORIGIN")
    return [
        _shared(compiler, names[product], parts, flags[product]) for product, parts in units.items()
    ]


def _shared(compiler: str, output: Path, units: list[Unit], flags: list[str]) -> Link:
    command = (compiler, "-shared", "-pthread", f"-Wl,-soname,{output.name}")
    return Link(output, tuple(unit.object for unit in units), command, tuple(flags))


def _run_path(*folders: str) -> list[str]:
    return ["-Wl,--enable-new-dtags", f"-Wl,-rpath,{':'.join(dict.fromkeys(folders))}"]


def _tensorflow_run_path(target: find.Target | None, in_place: bool) -> list[str]:
    if not in_place:
        return ["$ORIGIN/../../tensorflow"]
    return [str(folder / "tensorflow") for folder in target.site_packages] if target else []


def _mpi_run_path(mpi: find.Mpi, target: find.Target | None, in_place: bool) -> list[str]:
    # From site-packages/tfhvd/_lib to the `lib` that the wheels of Open MPI and MPICH fill.
    wheels = [str(target.prefix / "lib")] if in_place and target else ["$ORIGIN/../../../.."]
    if any(find.is_thrown_away(folder) for folder in mpi.library_folders):
        return wheels
    if target and target.prefix / "bin" == mpi.wrapper.parent:
        return wheels
    return [*map(str, mpi.library_folders), *wheels]


def _config_text(
    tensorflow: find.TensorFlow,
    mpi: find.Mpi,
    vendor: str,
    mpi_version: str,
    compiler: str,
    target: find.Target | None,
) -> str:
    folders = [folder for folder in mpi.library_folders if not find.is_thrown_away(folder)]
    if not folders and target:
        folders = [target.prefix / "lib"]
    facts = {
        "TENSORFLOW_VERSION": tensorflow.version,
        "XLA": find.has_xla(tensorflow),
        "MPI_VENDOR": vendor,
        "MPI_VERSION": mpi_version,
        "MPI_LIBRARY_FOLDER": str(folders[0]) if folders else "",
        "COMPILER": compiler,
    }
    head = '"""What this build of tfhvd was made with. Written by setup.py: do not edit."""\n\n'
    return head + "".join(f"{name} = {value!r}\n" for name, value in facts.items())


def core_tests(root: Path, build: Path, sanitize: str) -> tuple[list[Unit], list[Link]]:
    """Describes the core as a library and each tests/core/*.cc as a program linked to it.

    Programs that are not called `*_test` are started under mpirun. They are built where there is an
    MPI, with the core's way to it beside the core, and not for a sanitizer. tests/perf/growth.cc is
    built beside them.

    Args:
        root: The source tree.
        build: The folder for everything that is made; see also `core_tests_folder`.
        sanitize: "thread", "address" or "" (none).

    Raises:
        find.BuildError: There is no compiler.
    """
    compiler, target = find.find_compiler(), find.find_target()
    version = find.compiler_version(compiler)
    out = core_tests_folder(build, sanitize)
    tools = _SANITIZERS[sanitize]
    # Without a sanitizer the core is compiled as for the product, and shares its objects.
    tested = (_LEVELS[sanitize], "-g1", *tools)
    core_flags = [*tested, "-fno-omit-frame-pointer"] if sanitize else _CORE_FLAGS
    core_objects = (out if sanitize else build) / "objects" / CORE
    flags = common_flags(root)
    core = [
        Unit(
            (source,),
            core_objects / source.with_suffix(".o"),
            (compiler, *flags, *core_flags),
            version,
        )
        for source in sources(root)[CORE]
    ]
    with_mpi = not sanitize and find.find_target_mpicc(target) is not None
    pattern = "*.cc" if with_mpi else "*_test.cc"
    measuring = [] if sanitize else [root / "tests" / "perf" / "growth.cc"]
    programs = [
        Unit(
            sources=(path.relative_to(root),),
            object=out / "objects" / f"{path.stem}.o",
            command=(compiler, *flags, "-Werror", *tested),
            stamp=version,
            cost=3,
        )
        for path in [*sorted((root / "tests" / "core").glob(pattern)), *measuring]
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
    links = [_shared(compiler, library, core, [*tools, "-ldl", "-lrt"])]
    for unit in programs:
        own = (str(library), "-ldl", *tools, *_run_path("$ORIGIN"))
        link = Link(out / unit.sources[0].stem, (unit.object,), (compiler, "-pthread"), own)
        links.append(link)
    # What programs open in the place of the GPU's driver and of NCCL.
    links.append(_shared(compiler, out / "libtfhvd_fake_gpu.so", fakes, [*tools, "-lrt"]))
    units = [*programs, *core, *fakes]
    if with_mpi:
        mpi = find.find_mpi(target)
        unit = Unit(
            (MPI_API,),
            out / "objects" / "mpi_api.o",
            (compiler, *flags, *_mpi_flags(mpi)),
            " ".join([version, *find.mpi_vendor(compiler, mpi)]),
        )
        run_path = _run_path(*_mpi_run_path(mpi, target, in_place=True))
        units.append(unit)
        links.append(
            _shared(compiler, out / "libtfhvd_mpi.so", [unit], [*mpi.link_flags, *run_path])
        )
    return units, links


_SANITIZERS = {
    "": (),
    "thread": ("-fsanitize=thread",),
    "address": ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"),
}
# To optimize around the checks for undefined behaviour takes GCC longer than the tests run.
_LEVELS = {"": "-O1", "thread": "-O1", "address": "-Og"}


def core_tests_folder(build: Path, sanitize: str) -> Path:
    """Returns where the programs of the core's tests are built."""
    return build / (f"core_tests-{sanitize}" if sanitize else "core_tests")
