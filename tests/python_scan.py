"""Reads the imports of Python files, as far as the layering test needs them."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class Import:
    """One name that a file imports.

    Attributes:
        name: the absolute name; of `from package import name`, both together.
        late: whether it is imported when a function is called.
    """

    name: str
    late: bool


def imports(tree: ast.AST) -> list[Import]:
    """Lists what a file imports, without what type checkers alone are shown."""
    return [Import(name, late) for name, late in _imported(tree, late=False)]


def _imported(node: ast.AST, late: bool) -> Iterator[tuple[str, bool]]:
    if isinstance(node, ast.If) and _is_for_type_checkers(node.test):
        for child in node.orelse:
            yield from _imported(child, late)
        return
    if isinstance(node, ast.Import):
        yield from ((alias.name, late) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield from ((f"{node.module}.{alias.name}", late) for alias in node.names)
    late = late or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
    for child in ast.iter_child_nodes(node):
        yield from _imported(child, late)


def _is_for_type_checkers(test: ast.expr) -> bool:
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


def first_arguments(path: Path, function: str) -> list[object]:
    """Lists the constants that a file's calls of a function begin with.

    Args:
        path: of the file.
        function: as the calls name it, such as "user_messages.check".
    """
    calls = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return [
        call.args[0].value
        for call in calls
        if isinstance(call, ast.Call)
        and ast.unparse(call.func) == function
        and isinstance(call.args[0], ast.Constant)
    ]


def python_files(root: Path, *folders: str) -> list[Path]:
    """Lists the Python files in folders of a tree that people write, sorted."""
    found = [path for folder in folders for path in (root / folder).rglob("*.py")]
    return sorted(path for path in found if path.name != "_build_config.py")


def module_name(path: Path, root: Path) -> str:
    """Returns the name by which a file is imported: "a.b" for a/b.py and for a/b/__init__.py."""
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def module_of(name: str, modules: set[str]) -> str:
    """Returns the module, among those known, that an imported name is or is in; "" for others'."""
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name
