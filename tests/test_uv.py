"""The environment that uv installs into is found through uv itself, which is the build's parent.

With the real uv: tests/long/installs.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from build_tools import find, uv

ROOT = Path(__file__).resolve().parent.parent

# What stands for uv is Python: `uv python find` runs this file, called python, in uv's folder.
FIND = """
import os, sys
assert sys.argv[1:] == ["find", *os.environ["EXPECTED"].split()], sys.argv
print(sys.executable)
"""
INSTALL = """
import subprocess, sys
sys.exit(subprocess.run([sys.executable, "-c", sys.argv[-1]]).returncode)
"""
BUILD = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from build_tools import uv
print(uv.target_folders())
"""


def folders(folder: Path, *words: str, expected: str = "", uv: str = sys.executable) -> str:
    """What a build sees that this program, called with these words, has started."""
    (folder / "python").write_text(FIND, encoding="utf-8")
    (folder / "install.py").write_text(INSTALL, encoding="utf-8")
    return subprocess.run(
        [sys.executable, "install.py", *words, BUILD],
        cwd=folder,
        env={**os.environ, "UV": uv, "EXPECTED": expected},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
    ).stdout.strip()


def test_uv_is_asked_for_its_target(tmp_path):
    target = find.find_target()
    assert target is not None
    whole = str([target.prefix, *target.site_packages])
    assert folders(tmp_path, "pip", "install", ".") == whole
    assert folders(tmp_path, "pip", "install", "-p", "3.12", expected="3.12") == whole


def test_the_target_is_unknown(tmp_path):
    assert folders(tmp_path, "build") == "None"
    assert folders(tmp_path, "pip", "install", uv="/bin/sh") == "None", "the parent is not uv"
    answer = "unexpected"  # what stands for uv fails
    assert folders(tmp_path, "pip", "install", expected=answer) == "None"


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        ("uv pip install .", []),
        ("uv -q pip sync --python=/opt/env/bin/python", ["/opt/env/bin/python"]),
        ("uv pip install --system .", ["--system"]),
        ("uv pip install --target /opt/folder .", None),
        ("uv pip install --prefix=/opt/folder .", None),
        ("uv sync", None),
    ],
)
def test_what_uv_was_told(words, arguments):
    assert uv.find_arguments(words.split()) == arguments
