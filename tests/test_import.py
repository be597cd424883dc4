"""What `import tfhvd` brings, and what it does not."""

from __future__ import annotations

import ast
import subprocess
import sys

import mpi
import pytest

import tfhvd


def imported_after(statement: str) -> set[str]:
    """The top-level packages that a fresh interpreter has imported after a statement."""
    program = f"{statement}\nimport sys\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    command = [sys.executable, "-c", program]
    return set(subprocess.check_output(command, cwd=mpi.ROOT, text=True).split())


@pytest.mark.parametrize(
    "statement",
    [
        "import tfhvd",
        "import tfhvd.launch",
        "import tfhvd as hvd; hvd.init(); hvd.rank(); hvd.shutdown()",
        "import tfhvd as hvd; str(hvd.build_info())",
    ],
)
def test_tensorflow_is_imported_for_the_operations_alone(statement):
    assert not imported_after(statement) & {"tensorflow", "keras", "tf_keras", "numpy"}


def test_every_public_name_is_there():
    assert len(set(tfhvd.__all__)) == len(tfhvd.__all__)
    for name in tfhvd.__all__:
        assert getattr(tfhvd, name) is not None
        assert name in dir(tfhvd)
    with pytest.raises(AttributeError, match="no attribute 'alreduce'"):
        _ = tfhvd.alreduce


def test_type_checkers_see_the_same_names():
    tree = ast.parse((mpi.ROOT / "tfhvd" / "__init__.py").read_text())
    [branch] = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {(node.module, alias.name) for node in branch.body for alias in node.names}
    homes = {(module, name) for module, names in tfhvd._HOMES.items() for name in names}
    assert seen == homes | {("tfhvd", room) for room in tfhvd._ROOMS}
    assert {name for _, name in seen} | {"__version__"} == set(tfhvd.__all__)
