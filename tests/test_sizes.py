"""Rooms, classes and names stay small and distinct. Each table of exceptions may only shrink."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import python_scan

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "tfhvd"

MOST_MODULES = 12  # in a folder
MOST_METHODS = 15  # of a class
MOST_FLAGS = 3  # attributes of an object that are set to True or False

# Folders of one kind of thing each, a file a thing.
COLLECTIONS = {".", "ops", "compat", "keras/callbacks"}
# Folder -> its number of modules.
LARGE_ROOMS = {"bench": 15, "data": 13, "gradients": 14, "hang": 14, "profiling": 15, "tools": 13}
# Class -> its numbers of methods and flags.
LARGE_CLASSES = {
    "Bench": (21, 1),
    "Replay": (25, 3),
    "FitSession": (22, 2),
    "GradientReducer": (18, 0),
    "Manager": (18, 0),
    "Membership": (26, 6),
    "StatefulCompression": (19, 1),
    "Supervisor": (23, 0),
    "Agent": (17, 2),
}
# Names that modules of several rooms have. Modules of `compat`, `bench` and `keras/callbacks` have
# the names of what they are for.
SHARED_NAMES = {
    *("__init__", "__main__", "cli", "errors"),
    *("admission", "collectives", "names", "optimizer", "report", "timeline"),
}
# Likewise of classes.
SHARED_CLASSES = {
    *("Cores", "Exchange", "Job", "Node", "Outcome", "Rank", "Reduces"),
    *("State", "Step", "Value"),
}


def _modules() -> list[Path]:
    """Returns the modules that people write; `shim` holds another package."""
    found = python_scan.python_files(ROOT, "tfhvd")
    return [path for path in found if "shim" not in path.parts]


def _room(path: Path) -> str:
    return path.parent.relative_to(PACKAGE).as_posix()


def _classes() -> Iterator[tuple[str, ast.ClassDef]]:
    """Yields the classes of tfhvd, each with its room."""
    for path in _modules():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                yield _room(path), node


def _methods(cls: ast.ClassDef) -> int:
    return sum(isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) for node in cls.body)


def _flags(cls: ast.ClassDef) -> int:
    """Returns how many attributes of `self` a class sets to True or False."""
    flags = set()
    for node in ast.walk(cls):
        if not isinstance(node, (ast.Assign, ast.AnnAssign)):
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target, value in ((each, node.value) for each in targets):
            pairs = [(target, value)]
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                pairs = list(zip(target.elts, value.elts))
            for name, given in pairs:
                of_self = isinstance(name, ast.Attribute) and ast.unparse(name.value) == "self"
                if of_self and isinstance(given, ast.Constant) and isinstance(given.value, bool):
                    flags.add(ast.unparse(name))
    return len(flags)


def _places(named: Iterator[tuple[str, str]]) -> set[str]:
    """Returns the names that stand in several rooms, except those that name a thing of the room."""
    rooms = defaultdict(set)
    for room, name in named:
        if room.partition("/")[0] not in ("compat", "bench") and room != "keras/callbacks":
            rooms[name].add(room)
    return {name for name, among in rooms.items() if len(among) > 1}


def test_rooms_have_few_modules():
    sizes = Counter(_room(path) for path in _modules() if path.name != "__init__.py")
    large = {room: size for room, size in sizes.items() if size > MOST_MODULES}
    assert {room: size for room, size in large.items() if room not in COLLECTIONS} == LARGE_ROOMS


def test_classes_have_few_methods_and_flags():
    sizes = {cls.name: (_methods(cls), _flags(cls)) for _, cls in _classes()}
    large = {
        name: (methods, flags)
        for name, (methods, flags) in sizes.items()
        if methods > MOST_METHODS or flags > MOST_FLAGS
    }
    assert large == LARGE_CLASSES


def test_modules_have_names_of_their_own():
    assert _places((_room(path), path.stem) for path in _modules()) == SHARED_NAMES


def test_classes_have_names_of_their_own():
    public = ((room, cls.name) for room, cls in _classes() if not cls.name.startswith("_"))
    assert _places(public) == SHARED_CLASSES
