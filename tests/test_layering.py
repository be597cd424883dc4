"""The tree keeps its layers: who includes whom; where state, settings and vendors may be."""

from __future__ import annotations

import ast
import graphlib
import re
from pathlib import Path

import cpp_scan
import pytest
import python_scan

ROOT = Path(__file__).resolve().parent.parent

GROUND = {"base", "numeric", "memory"}
NOUNS = {"flow", "comm", "device"}
STAGES = {"queue", "negotiate", "fuse", "execute", "observe"}
COLLECTIVES = {"collectives", "collectives/transfer", "collectives/hierarchical"}
BACKENDS = {f"backends/{name}" for name in ("inproc", "mpi", "shm", "nccl", "tcp")}
FRAMEWORKS = {"tf", "xla", "python"}

# Each folder of cc/ -> the other folders whose headers it may include. BUILD says the same.
MAY_INCLUDE: dict[str, set[str]] = {
    "base": set(),
    **{folder: {"base"} for folder in GROUND - {"base"}},
    **dict.fromkeys(NOUNS, GROUND),
    "tune": {"base", "flow"},
    "schedule": {"base", "flow", "comm"},
    **dict.fromkeys(COLLECTIVES, GROUND | NOUNS),
    **dict.fromkeys(STAGES, GROUND | NOUNS),
    "negotiate": GROUND | NOUNS | {"schedule", "tune"},
    "execute": GROUND | NOUNS | {"collectives"},
    "engine": GROUND | NOUNS | STAGES | {"schedule"},
    "elastic": GROUND | {"flow", "comm", "engine"},
    **dict.fromkeys(BACKENDS, GROUND | {"comm", "device", "collectives/transfer"}),
    "rendezvous": {"base", "comm", "elastic", "collectives/hierarchical"} | BACKENDS,
    "process": GROUND | NOUNS | COLLECTIVES | BACKENDS | {"engine", "elastic", "rendezvous"},
    **dict.fromkeys(FRAMEWORKS, GROUND | {"process", "engine", "flow"}),
    # Both are in one library; what is compiled reads the attributes of the ops.
    "xla": GROUND | {"process", "engine", "flow", "tf"},
}
# The frameworks' folders see the engine through this header alone.
ENGINE_DOOR = "cc/engine/engine.h"

# A header of somebody else -> where it may be included (a folder of cc/, or one file).
VENDORS = {
    r"mpi(-ext)?\.h": ("cc/backends/mpi/mpi_api.cc",),
    r"nccl\.h|cuda.*|driver_types\.h": ("cc/backends/nccl/",),
    r"tensorflow/.*|tsl/.*|absl/.*|(unsupported/)?Eigen/.*|google/protobuf/.*": (
        "cc/tf/",
        "cc/xla/",
    ),
    r"xla/.*": ("cc/xla/", "cc/tf/stream.cc"),
    r"pybind11/.*|Python\.h": ("cc/python/",),
    # Not in the C++ library of the oldest systems that the binary wheel serves (GCC 8).
    r"filesystem|charconv|execution": (),
}
# Of the C++ library, of POSIX and of Linux.
SYSTEM = r"[a-z_0-9]+|[a-z_0-9]+\.h|(sys|linux|netinet|arpa|net)/[a-z_0-9]+\.h"

# Each room of tfhvd/, a folder or a file at its top -> the other rooms that it may import.
_TO_A_JOB = {"errors", "system", "network", "protocol"}
_BELOW_OPS = {"errors", "compat", "runtime", "job", "compression"}
MAY_IMPORT: dict[str, set[str]] = {
    "_version": set(),
    "errors": set(),
    "system": set(),
    "network": {"errors", "system"},
    "protocol": {"errors", "system", "network"},
    "hang": _TO_A_JOB,
    "compat": {"errors"},
    "launch": {*_TO_A_JOB, "hang", "_version"},
    "horovod_alias": {"launch", "ops"},
    "runtime": {*_TO_A_JOB, "hang", "compat", "telemetry", "_version"},
    "telemetry": {"network", "runtime"},
    "job": {"compat", "protocol", "runtime", "telemetry"},
    "compression": {"errors", "compat", "runtime", "job"},
    "ops": _BELOW_OPS,
    "data": {"system", "compat", "runtime", "ops"},
    "gradients": _BELOW_OPS | {"ops"},
    "tf1": _BELOW_OPS | {"ops", "gradients"},
    "replicas": _BELOW_OPS | {"ops"},
    "checkpoint": _BELOW_OPS | {"system", "ops", "replicas", "data", "_version"},
    "keras": {
        *_BELOW_OPS,
        *(
            "system",
            "ops",
            "gradients",
            "tf1",
            "replicas",
            "profiling",
            "data",
            "telemetry",
            "checkpoint",
        ),
    },
    # What users see. `__init__` finds its names when they are asked for.
    "__init__": {"_version"},
    "as_horovod": {"horovod_alias"},
    "settings": {"runtime"},
    "installation": {"compat", "runtime", "job", "_version"},
    "lr_scaling": {"runtime"},
    # Speaks of jobs from outside; what it asks of an installation is what a rank would find.
    "tools": {
        *_TO_A_JOB,
        *("hang", "compat", "runtime", "job", "launch", "installation", "profiling"),
        *("checkpoint", "_version"),
    },
    "__main__": {"tools"},
    "ray": {"errors", "launch", "network", "protocol"},
    "dask": {"errors", "launch", "network", "protocol"},
    "spark": {"launch", "network", "protocol"},
    "timeline": {"runtime", "job", "telemetry"},
    "elastic": _BELOW_OPS | {"ops", "gradients", "keras"},
    "profiling": {"compat", "runtime", "telemetry", "ops", "hang", "system"},
    "loop_start": _BELOW_OPS | {"ops", "gradients", "replicas"},
    "tape": _BELOW_OPS | {"ops", "gradients", "loop_start"},
    "optimizer": _BELOW_OPS | {"ops", "gradients", "tf1", "keras"},
    "keras/__init__": {"__init__", "keras", "ops", "data", "elastic", "checkpoint"},
    "bench": {"__init__", "keras/__init__", "runtime", "job"},
}
# The rooms of a room -> its other rooms that each may import; a file at its top is one, too.
_RULES = {"state", "errors"}
_STARTS = _RULES | {"stdio", "placement"}
ROOMS_OF: dict[str, dict[str, set[str]]] = {
    "launch": {
        "errors": set(),
        "state": {"errors"},
        "stdio": _RULES,
        "placement": _RULES | {"stdio"},
        "options": _STARTS,
        "failover": _STARTS,
        "supervisor": _STARTS | {"failover"},
        "agent": _STARTS | {"failover"},
        "standby_main": _STARTS | {"failover", "supervisor"},
        "cli": _STARTS | {"failover", "supervisor", "options"},
        "__main__": {"cli"},
        "run": _STARTS | {"options", "cli"},
        "__init__": set(),
    },
}
# Modules that import another one only when a function is called -> why. For other packages of
# tfhvd's, and against the table above, there is no other way than to be listed here.
LATE = {
    ("bench.cli", "__init__"): "it refuses wrong arguments at once",
    ("bench.cli", "keras"): "it refuses wrong arguments at once",
    ("compression.stateful", "ops.allgather"): "operations take a compression",
    ("compression.stateful", "ops.alltoall"): "operations take a compression",
    ("keras.callbacks.base", "keras.fit.patch"): "`fit` adds callbacks of its own",
    ("keras.wrap.hooks", "keras.optimizer"): "it chooses among the hooks",
    ("launch.cli", "__init__"): "the only task of the launcher that needs more than it",
    ("network.listener", "network.tls"): "OpenSSL takes longer to load than all of an agent",
    ("network.connector", "network.tls"): "OpenSSL takes longer to load than all of an agent",
    ("network.tokens", "network.tls"): "OpenSSL takes longer to load than all of an agent",
    ("optimizer", "keras.optimizer"): "Keras takes seconds to import",
}

LONGEST_FILE = 400
LONGEST_FUNCTION = 80


def _cpp_files() -> list[Path]:
    return sorted([*ROOT.glob("cc/**/*.h"), *ROOT.glob("cc/**/*.cc")])


def _python_files(*folders: str) -> list[Path]:
    return python_scan.python_files(ROOT, *folders)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _short(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _folder(short: str) -> str:
    """Returns the folder of cc/ that a path lies in, e.g. "backends/mpi"."""
    return short.removeprefix("cc/").rpartition("/")[0]


def test_there_is_something_to_check():
    assert len(_cpp_files()) > 20
    assert len(_python_files("tfhvd")) > 10


def test_every_folder_has_a_layer():
    unknown = {_folder(_short(path)) for path in _cpp_files()} - MAY_INCLUDE.keys()
    assert not unknown, (
        f"folders of cc/ that are in no layer of {_short(Path(__file__))}: {unknown}"
    )


def test_the_doors_of_the_core_are_few_and_there():
    text = _text(ROOT / "cc" / "README.md")
    doors, folders = text.partition("## Doors")[2].split("## Folders")
    headers = re.findall(r"(?m)^\| `([^`]*)` \|", doors)
    assert 0 < len(headers) <= 15
    assert not [header for header in headers if not (ROOT / "cc" / header).is_file()]
    named = re.findall(r"(?m)^\| (`[^|]*)\|[^|]*\| (`[^|]*) \|", folders)
    listed = {name for cell, _ in named for name in re.findall(r"`(\w+)/`", cell)}
    assert listed == {_folder(_short(path)).partition("/")[0] for path in _cpp_files()}
    for cell, begin in named:
        folder = re.findall(r"`(\w+)/`", cell)[0] if cell.count("`") == 2 else ""
        for header in re.findall(r"`([^`]*)`", begin):
            assert (ROOT / "cc" / folder / header).is_file(), header


def test_includes_go_down():
    wrong = []
    for path in _cpp_files():
        folder = _folder(_short(path))
        for include in cpp_scan.includes(_text(path)):
            if not include.header.startswith("cc/"):
                continue
            other = _folder(include.header)
            allowed = other == folder or other in MAY_INCLUDE[folder]
            if folder in FRAMEWORKS and other == "engine":
                allowed = include.header == ENGINE_DOOR
            if not allowed or not (ROOT / include.header).is_file():
                wrong.append(f"{_short(path)} includes {include.header}")
    assert not wrong, "\n".join(wrong)


def test_vendors_stay_in_their_folders():
    wrong = []
    for path in _cpp_files():
        for include in cpp_scan.includes(_text(path)):
            header = include.header
            if header.startswith("cc/"):
                continue
            places = [place for name, place in VENDORS.items() if re.fullmatch(name, header)]
            if places:
                allowed = _short(path).startswith(places[0])
            else:
                allowed = include.system and re.fullmatch(SYSTEM, header)
            if not allowed:
                wrong.append(f"{_short(path)} includes {header}")
    assert not wrong, "\n".join(wrong)


def test_no_unit_is_in_an_include_cycle():
    """A unit is a header with its .cc."""
    graph: dict[str, set[str]] = {}
    for path in _cpp_files():
        unit = _short(path).rpartition(".")[0]
        used = {include.header.rpartition(".")[0] for include in cpp_scan.includes(_text(path))}
        graph.setdefault(unit, set()).update(used - {unit})
    graphlib.TopologicalSorter(graph).prepare()


def test_the_environment_is_read_in_one_place():
    asks = re.compile(r"\b(?:secure_)?getenv\b|\bsetenv\b|\bputenv\b|\benviron\b")
    found = {_short(path) for path in _cpp_files() if asks.search(cpp_scan.blank(_text(path)))}
    assert found <= {"cc/base/config.cc"}


def test_programs_that_a_rank_starts_inherit_no_file():
    """Streams of the C++ library are opened without O_CLOEXEC: those of base/files.h are not."""
    leaves_open = re.compile(
        r"\b[io]?fstream\b|\bfopen\([^;]*\"[rwa][b+]*\"\)"
        r"|^(?!.*O_CLOEXEC).*\bO_(?:RDONLY|WRONLY|RDWR)\b",
        re.MULTILINE,
    )
    found = {_short(path) for path in _cpp_files() if leaves_open.search(_text(path))}
    assert not found


def test_nothing_waits_by_the_wall_clock():
    """It jumps where somebody sets it. Only records and the log say what time of day it was.

    The C++ library's own waits may go by it: base/mutex.h has others.
    """
    clocks = re.compile(
        r"\b(system_clock|CLOCK_REALTIME|gettimeofday|condition_variable|wait_for|wait_until)\b"
    )
    found = {_short(path) for path in _cpp_files() if clocks.search(cpp_scan.blank(_text(path)))}
    assert found == {
        "cc/base/log.cc",
        "cc/observe/timeline.cc",
        "cc/observe/flight_record.cc",
    }


def test_no_two_headers_define_the_same_class():
    """A linker would take either one's functions for both, wherever these are not inlined."""
    opening = re.compile(
        r"^namespace ([\w:]+) \{|^(?:class|struct)\b[^;{(]*?(\w+)(?: final)?\s*[:{]", re.M
    )
    found: dict[str, list[str]] = {}
    for path in _cpp_files():
        namespace = ""
        for match in opening.finditer(_text(path)) if path.suffix == ".h" else ():
            namespace = match[1] or namespace
            if match[2]:
                found.setdefault(f"{namespace}::{match[2]}", []).append(_short(path))
    assert "tfhvd::Engine" in found and "tfhvd::CallBarrier" in found
    twice = {name: paths for name, paths in found.items() if len(paths) > 1}
    assert not twice, twice


def test_a_class_has_its_methods_in_one_file():
    """A class that is too long for a file is several ideas: it is cut by these."""
    files: dict[str, set[str]] = {}
    for path in _cpp_files():
        for name in cpp_scan.classes_defined(_text(path)) if path.suffix == ".cc" else ():
            # A name may be another class in another folder.
            files.setdefault(f"{_folder(_short(path))}/{name}", set()).add(_short(path))
    split = {name: sorted(paths) for name, paths in files.items() if len(paths) > 1}
    assert not split, f"cut them by idea: {split}"


def test_state_belongs_to_the_process_alone():
    # A handler of a signal of Python's is given nothing but the signal.
    handler = "cc/python/uncaught.cc"
    found = [
        f"{_short(path)}: {name}"
        for path in _cpp_files()
        if _folder(_short(path)) != "process" and _short(path) != handler
        for name in cpp_scan.mutable_state(_text(path))
    ]
    assert not found, "mutable state outside cc/process:\n" + "\n".join(found)


def test_no_feature_is_chosen_by_the_preprocessor():
    """What exists is decided by which files there are; base/mutex.h asks which compiler it is."""
    found = [
        _short(path)
        for path in _cpp_files()
        if re.search(r"(?m)^\s*#\s*(if|ifdef|ifndef|elif)\b", cpp_scan.blank(_text(path)))
        and path.name != "compat.h"
    ]
    assert set(found) <= {"cc/base/mutex.h"}


def test_files_are_short():
    long = {
        _short(path): lines
        for path in [*_cpp_files(), *_python_files("tfhvd", "build_tools", "examples")]
        if (lines := len(_text(path).splitlines())) > LONGEST_FILE
    }
    assert not long, f"over {LONGEST_FILE} lines, usually two ideas: {long}"


def test_examples_are_short():
    long = {_short(path) for path in _python_files("examples") if _text(path).count("\n") > 120}
    assert not long


def test_functions_are_short():
    long = []
    for path in _cpp_files():
        long += [
            f"{_short(path)}:{function.line} {function.name}: {function.lines}"
            for function in cpp_scan.functions(_text(path))
            if function.lines > LONGEST_FUNCTION
        ]
    for path in _python_files("tfhvd", "build_tools", "examples"):
        for node in ast.walk(ast.parse(_text(path))):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                body = [part for part in node.body if not _is_docstring(part)] or node.body
                lines = body[-1].end_lineno - body[0].lineno + 1
                if lines > LONGEST_FUNCTION:
                    long.append(f"{_short(path)}:{node.lineno} {node.name}: {lines}")
    assert not long, f"over {LONGEST_FUNCTION} lines:\n" + "\n".join(long)


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _imports(tree: ast.AST) -> set[str]:
    """Returns the modules that a file imports, also those named by `from package import module`."""
    found = {found.name for found in python_scan.imports(tree)}
    return found | {name.rpartition(".")[0] for name in found}


def _import_graph() -> dict[str, set[tuple[str, bool]]]:
    """Returns the modules of tfhvd -> those that each imports, and whether it does so late."""
    folder = ROOT / "tfhvd"
    # What is in the folder that is put on the path of Python is no module of tfhvd's.
    paths = [path for path in _python_files("tfhvd") if "shim" not in path.parts]
    names = {path: python_scan.module_name(path, folder.parent) for path in paths}
    graph: dict[str, set[tuple[str, bool]]] = {}
    for path, name in names.items():
        used = graph.setdefault(_inside(name), set())
        for found in python_scan.imports(ast.parse(_text(path))):
            module = python_scan.module_of(found.name, set(names.values()))
            if module and module != name:
                used.add((_inside(module), found.late))
    return graph


def _inside(module: str) -> str:
    """Returns the name of a module of tfhvd without "tfhvd."."""
    return module.partition(".")[2] or "__init__"


def _room(module: str) -> str:
    """Returns the room that a module is in, as MAY_IMPORT names it."""
    return "keras/__init__" if module == "keras" else module.partition(".")[0]


def _uses(tree: ast.AST, name: str) -> bool:
    """Whether `something.name` is read, or `name` imported from outside of tfhvd."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == name:
            return True
        if not isinstance(node, ast.ImportFrom) or (node.module or "").startswith("tfhvd"):
            continue
        if any(alias.name == name for alias in node.names):
            return True
    return False


def test_imports_are_absolute():
    relative = [
        _short(path)
        for path in _python_files("tfhvd")
        for node in ast.walk(ast.parse(_text(path)))
        if isinstance(node, ast.ImportFrom) and node.level
    ]
    assert not relative, "the checks below read absolute names only"


def test_every_python_module_has_a_room():
    unknown = {_room(module) for module in _import_graph()} - MAY_IMPORT.keys()
    assert not unknown, f"rooms of tfhvd/ that are in no layer of {_short(Path(__file__))}"


def test_python_imports_go_down():
    wrong = [
        f"tfhvd.{module} imports tfhvd.{other}"
        for module, used in _import_graph().items()
        for other, _ in used
        if _room(other) not in {_room(module), *MAY_IMPORT[_room(module)]}
        and (module, other) not in LATE
    ]
    assert not wrong, "\n".join(wrong)


def test_imports_between_the_rooms_of_a_room_go_down():
    wrong = []
    for module, used in _import_graph().items():
        outer, _, inside = module.partition(".")
        rooms = ROOMS_OF.get(outer)
        if rooms is None:
            continue
        room = inside.partition(".")[0] or "__init__"
        assert room in rooms, f"tfhvd.{module} is in no room of {_short(Path(__file__))}"
        for other, _ in used:
            if other.partition(".")[0] == outer and other != outer:
                beside = other.partition(".")[2].partition(".")[0]
                if beside not in {room, *rooms[room]}:
                    wrong.append(f"tfhvd.{module} imports tfhvd.{other}")
    assert not wrong, "\n".join(wrong)


def test_no_python_module_is_in_an_import_cycle():
    """Whether it imports at its top or in a function; a package's `__init__` may import its own."""
    graph = {
        module: {other for other, _ in used if (module, other) not in LATE}
        for module, used in _import_graph().items()
    }
    graphlib.TopologicalSorter(graph).prepare()


def test_late_imports_are_known_with_their_reasons():
    late = {
        (module, other)
        for module, used in _import_graph().items()
        for other, is_late in used
        if is_late
    }
    assert late == LATE.keys()


def test_what_begins_with_an_underscore_stays_in_its_package():
    wrong = []
    for path in _python_files("tfhvd"):
        own = python_scan.module_name(path.parent, ROOT)
        for found in python_scan.imports(ast.parse(_text(path))):
            package, _, private = found.name.partition("._")
            if private and not private.startswith("_") and package.startswith("tfhvd."):
                outside = own != package and not own.startswith(f"{package}.")
                wrong += [f"{_short(path)} imports {found.name}"] if outside else []
    assert not wrong, "\n".join(wrong)


def test_ops_do_not_know_keras():
    for path in _python_files("tfhvd/ops"):
        names = _imports(ast.parse(_text(path)))
        above = {name for name in names if re.match(r"(tfhvd\.keras|keras|tf_keras)(\.|$)", name)}
        assert not above, f"{_short(path)} imports {above}"


def test_the_launcher_starts_without_tensorflow():
    for path in _python_files("tfhvd/launch"):
        names = _imports(ast.parse(_text(path)))
        heavy = {name for name in names if re.match(r"(tensorflow|keras|numpy|mpi4py)(\.|$)", name)}
        assert not heavy, f"{_short(path)} imports {heavy}"


def test_names_for_annotations_are_for_readers_alone():
    """They import both Keras, and mpi4py, which begins MPI."""
    for path in _python_files("tfhvd"):
        names = {each.name for each in python_scan.imports(ast.parse(_text(path)))}
        assert not any(name.startswith("tfhvd.compat.types") for name in names), _short(path)


def test_versions_of_others_are_asked_in_one_place():
    asked = set()
    for path in _python_files("tfhvd"):
        tree = ast.parse(_text(path))
        modules = {"packaging", "packaging.version", "importlib.metadata", "pkg_resources"}
        if _uses(tree, "__version__") or _uses(tree, "VERSION") or _imports(tree) & modules:
            asked.add(_short(path))
    outside = {path for path in asked if not path.startswith("tfhvd/compat/")}
    assert asked and not outside


@pytest.mark.parametrize("name", ["environ", "getenv"])
def test_python_reads_the_environment_in_few_places(name):
    asked = {path for path in _python_files("tfhvd") if _uses(ast.parse(_text(path)), name)}
    few = {"tfhvd/protocol/variables.py", "tfhvd/runtime/membership.py", "tfhvd/job/process.py"}
    launch = ROOT / "tfhvd" / "launch"
    assert {_short(path) for path in asked if launch not in path.parents} <= few


class TestScan:
    """The scanner sees what the tests above rely on."""

    def test_includes_without_comments(self):
        text = (
            '#include <mpi.h>\n// #include "no.h"\n/*\n#include "nor.h"\n*/\n#include "cc/a/b.h"\n'
        )
        assert cpp_scan.includes(text) == [
            cpp_scan.Include("mpi.h", system=True),
            cpp_scan.Include("cc/a/b.h", system=False),
        ]

    def test_functions_have_names_and_lengths(self):
        text = (
            "namespace a {\nclass B : public C {\n  int f() const {\n    return 1;\n  }\n};\n"
            "B::B(int x) : x_{x} {\n  if (x) {\n    g();\n  }\n}\n"
            "template <typename T>\nT Sum(const std::map<int, T>& m) {\n"
            '  const char* s = "{";\n}\n}\n'
        )
        found = {(f.name, f.lines) for f in cpp_scan.functions(text)}
        assert {("f", 3), ("Sum", 3)} <= found
        assert max(lines for _, lines in found) == 5

    def test_classes_are_those_of_the_methods_with_a_body(self):
        text = (
            "namespace a {\nB::B(int x) : x_{x} {}\nStatus C::Part::Run() const {\n  D::E();\n}\n"
            "template <typename T>\nstd::vector<T> F::All() {\n  return G::Of();\n}\nH::~H() {}\n"
            "C::Key C::Find() { return {}; }\n}\n"
        )
        assert cpp_scan.classes_defined(text) == {"B", "C", "C::Part", "F", "H"}

    @pytest.mark.parametrize(
        "text",
        [
            "int counter = 0;",
            "namespace {\nstd::mutex mutex;\n}",
            "namespace a {\nnamespace {\nstd::unique_ptr<Engine> engine;\n}\n}",
            "const char* name = nullptr;",
            "static std::vector<int> all{1, 2};",
            "Engine& Get() {\n  static Engine engine;\n  return engine;\n}",
            "thread_local int depth = 0;",
            "int F() {\n  static int calls = 0;\n  return ++calls;\n}",
        ],
    )
    def test_mutable_state_is_found(self, text):
        assert cpp_scan.mutable_state(text)

    @pytest.mark.parametrize(
        "text",
        [
            "constexpr int kMost = 3;",
            "const std::vector<int> kAll = {1, 2};",
            "constexpr const char* kNames[] = {nullptr};",
            "const char* const kName = nullptr;",
            "Status Run(int n, const std::function<void(int)>& f);",
            "class A {\n  int x_ = 0;\n  static Status Ok() { return {}; }\n  static int N();\n};",
            "using Reader = std::function<bool(int)>;",
            "enum class E { kA = 0 };",
            "template <typename T>\nstruct Box {\n  T value;\n};",
            "int F() {\n  static const int kOne = 1;\n  return static_cast<int>(kOne);\n}",
            "// int counter = 0;\n",
            "Engine::~Engine() = default;",
        ],
    )
    def test_fixed_values_and_declarations_are_not(self, text):
        assert not cpp_scan.mutable_state(text)


def test_files_of_tests_have_names_of_their_own():
    """Pytest imports them by these alone: two of one name pass by themselves, and not together."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(set(names)) == sorted(names)
