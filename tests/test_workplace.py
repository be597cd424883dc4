"""Builds keep out of each other's way, and out of a tree that is read-only."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from build_tools import workplace

ROOT = Path(__file__).resolve().parent.parent

# Holds a folder, says so, and ends when it is told to.
HOLD = """
import sys
from pathlib import Path

from build_tools import workplace

workplace.hold(Path(sys.argv[1]), sys.argv[2:], lambda line: print("waits", flush=True))
print("holds", flush=True)
sys.stdin.readline()
"""


def start(folder: Path, command: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder), command],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_second_build_waits_until_the_first_has_ended(tmp_path):
    with start(tmp_path / "build", "bdist_wheel") as first:
        assert first.stdout.readline() == "holds\n"
        with start(tmp_path / "build", "build_core_tests") as other:
            assert other.stdout.readline() == "holds\n"
            other.communicate("\n")
        with start(tmp_path / "build", "build_ext") as second:
            assert second.stdout.readline() == "waits\n"
            first.communicate("\n")
            assert second.stdout.readline() == "holds\n"
            second.communicate("\n")


def test_a_tree_that_is_read_only_is_left_alone(tmp_path, monkeypatch):
    assert workplace.find(tmp_path) == tmp_path / "build"
    assert workplace.options(tmp_path, tmp_path / "build") == {}
    monkeypatch.setattr(workplace.os, "access", lambda path, mode: False)  # root may write anywhere
    folder = workplace.find(tmp_path)
    assert tmp_path not in folder.parents
    options = workplace.options(tmp_path, folder)
    assert {Path(path) for each in options.values() for path in each.values()} == {folder}
    assert not list(tmp_path.iterdir())
