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
    "numeric",
    "memory",
    "flow",
    "comm",
    "device",
    "queue",
    "schedule",
    "tune",
    "negotiate",
    "fuse",
    "collectives",
    "collectives/transfer",
    "collectives/hierarchical",
    "execute",
    "observe",
    "engine",
    "elastic",
    "backends/inproc",
    "backends/shm",
    "backends/mpi",
    "backends/tcp",
    "backends/nccl",
    "rendezvous",
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
CORE_FLAGS = ["-O3", "-fno-semantic-interposition", "-ffp-contract=off"]
COMPLETE = "-Wl,--no-undefined"
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
    command = (compiler, *common_flags(root))
    flags = own_flags(root)
    outside = {
        CORE: [],
        MPI: list(mpi.compile_flags),
        TENSORFLOW: tensorflow_flags(tensorflow),
        PYTHON: [f"-isystem{f}" for f in (pybind11.get_include(), find.python_headers())],
    }
    version = find.compiler_version(compiler)
    stamps = {
        CORE: version,
        MPI: f"{version}, {vendor} {mpi_version}",
        TENSORFLOW: f"{version}, TensorFlow {tensorflow.version}",
        PYTHON: f"{version}, pybind11 {pybind11.__version__}",
    }
    units = {
        product: units_of(
            product,
            paths,
            objects / product,
            (*command, *flags[product], *outside[product]),
            stamps[product],
        )
        for product, paths in {**sources(root), TENSORFLOW: ops_sources(root, tensorflow)}.items()
    }
    links = _links(compiler, units, out, in_place, target, tensorflow, mpi)
    ops = [(tensorflow.version, find.has_xla(tensorflow), output_names()[TENSORFLOW].name)]
    config = config_text(
        ops, vendor, mpi_version, _mpi_library_folder(mpi, target), version, binary=False
    )
    return Native(
        units=[unit for part in units.values() for unit in part], links=links, config=config
    )


def ops_sources(root: Path, tensorflow: find.TensorFlow) -> list[Path]:
    """Returns the sources of the ops that can be compiled with that TensorFlow."""
    paths = sources(root)[TENSORFLOW]
    if find.has_xla(tensorflow):
        return paths
    return [path for path in paths if XLA not in path.parents]


def units_of(
    product: str, paths: list[Path], objects: Path, command: tuple[str, ...], stamp: str
) -> list[Unit]:
    """Returns what to compile for a product out of these sources, with its objects' folder."""
    return [
        Unit(
            sources=part,
            object=objects / _place(part).with_suffix(".o"),
            command=command,
            stamp=stamp,
            cost=_COST[product],
        )
        for part in _compiled_together(paths)
    ]


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


def own_flags(root: Path) -> dict[str, list[str]]:
    """Returns the flags of each product, beside those of what it is compiled against."""
    return {
        CORE: CORE_FLAGS,
        MPI: ["-O2", "-DOMPI_SKIP_MPICXX", "-DMPICH_SKIP_MPICXX"],
        TENSORFLOW: ["-O2", "-isystem", str(root / LACKS)],
        PYTHON: ["-O2", "-fvisibility=hidden"],
    }


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
    flags = {
        CORE: [COMPLETE, "-ldl", "-lrt"],
        MPI: [COMPLETE, *mpi.link_flags, *run_path(*mpi_run_path(mpi, target, in_place))],
        TENSORFLOW: [
            str(names[CORE]),
            *tensorflow_libraries(tensorflow),
            *run_path("$ORIGIN", *_tensorflow_run_path(target, in_place)),
        ],
        PYTHON: [str(names[CORE]), *run_path("$ORIGIN/_lib")],
    }
    flags[CORE] += run_path("$ORIGIN")
    return [
        shared(compiler, names[product], parts, flags[product]) for product, parts in units.items()
    ]


def tensorflow_libraries(tensorflow: find.TensorFlow) -> list[str]:
    """Returns the flags that link ops to that TensorFlow."""
    names = ["libtensorflow_framework.so.2"]
    names += ["libtensorflow_cc.so.2"] if find.has_xla(tensorflow) else []
    return [f"-L{tensorflow.folder}", *(f"-l:{name}" for name in names)]


def shared(compiler: str, output: Path, units: list[Unit], flags: list[str]) -> Link:
    """Returns the link of a library that is found by its file's name."""
    command = (compiler, "-shared", "-pthread", f"-Wl,-soname,{output.name}")
    return Link(output, tuple(unit.object for unit in units), command, tuple(flags))


def run_path(*folders: str) -> list[str]:
    """Returns the flags of a library that looks for others in these folders."""
    return ["-Wl,--enable-new-dtags", f"-Wl,-rpath,{':'.join(dict.fromkeys(folders))}"]


def _tensorflow_run_path(target: find.Target | None, in_place: bool) -> list[str]:
    if not in_place:
        return ["$ORIGIN/../../tensorflow"]
    return [str(folder / "tensorflow") for folder in target.site_packages] if target else []


def mpi_run_path(mpi: find.Mpi, target: find.Target | None, in_place: bool) -> list[str]:
    """Returns the folders in which libtfhvd_mpi.so looks for its MPI."""
    # From site-packages/tfhvd/_lib to the `lib` that the wheels of Open MPI and MPICH fill.
    wheels = [str(target.prefix / "lib")] if in_place and target else ["$ORIGIN/../../../.."]
    if any(find.is_thrown_away(folder) for folder in mpi.library_folders):
        return wheels
    if target and target.prefix / "bin" == mpi.wrapper.parent:
        return wheels
    return [*map(str, mpi.library_folders), *wheels]


def _mpi_library_folder(mpi: find.Mpi, target: find.Target | None) -> str:
    folders = [folder for folder in mpi.library_folders if not find.is_thrown_away(folder)]
    if not folders and target:
        folders = [target.prefix / "lib"]
    return str(folders[0]) if folders else ""


def config_text(
    ops: list[tuple[str, bool, str]],
    mpi_vendor: str,
    mpi_version: str,
    mpi_library_folder: str,
    compiler: str,
    *,
    binary: bool,
) -> str:
    """Returns the text of tfhvd/_build_config.py.

    Args:
        ops: For each library of ops: the version of its TensorFlow, whether it has collectives for
            XLA, and its file in tfhvd/_lib.
        mpi_vendor: Whose MPI libtfhvd_mpi.so is for; more than one in a binary wheel.
        mpi_version: The version of that MPI.
        mpi_library_folder: Where it is, if that is known.
        compiler: What built the libraries.
        binary: Whether it is a binary wheel's.
    """
    facts = {
        "OPS": ops,
        "MPI_VENDOR": mpi_vendor,
        "MPI_VERSION": mpi_version,
        "MPI_LIBRARY_FOLDER": mpi_library_folder,
        "COMPILER": compiler,
        "BINARY": binary,
    }
    head = '"""What this build of tfhvd was made with. Written by setup.py: do not edit."""\n\n'
    return head + "".join(f"{name} = {value!r}\n" for name, value in facts.items())
