"""Which Python uv installs into: uv builds in an environment of its own, and does not tell it.

uv is the parent of the process that builds. What uv was told there (its arguments, environment and
folder) is told to `uv python find`, which answers with the interpreter.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent
# Prints what build_tools.find says of the interpreter that runs this.
_ASK = """
import json
from build_tools import find
target = find.find_target()
print(json.dumps(target and [str(path) for path in (target.prefix, *target.site_packages)]))
"""
# Options by which it installs into a folder that is no environment.
_NO_ENVIRONMENT = ("--target", "-t", "--prefix")


def target_folders() -> list[Path] | None:
    """Returns the environment that uv installs into: its prefix, then its site-packages.

    None where this process is not uv's, or uv installs into no environment.
    """
    uv = os.environ.get("UV")
    parent = Path("/proc", str(os.getppid()))
    try:
        if not uv or not (parent / "exe").samefile(uv):
            return None
        words = _strings(parent / "cmdline")
        environ = dict(word.partition("=")[::2] for word in _strings(parent / "environ"))
        folder = (parent / "cwd").readlink()
        return _ask(uv, words, environ, folder)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None  # As if the target were unknown, as it is with other tools.


def _strings(path: Path) -> list[str]:
    return [os.fsdecode(word) for word in path.read_bytes().split(b"\0") if word]


def _ask(
    uv: str, words: Sequence[str], environ: Mapping[str, str], folder: Path
) -> list[Path] | None:
    question = find_arguments(words)
    if question is None:
        return None
    python = _output([uv, "python", "find", *question], environ, folder).strip()
    # Isolated: another program's PYTHONPATH or module of our name is not to answer.
    ask = f"import sys; sys.path.insert(0, {str(_ROOT)!r}){_ASK}"
    folders = json.loads(_output([python, "-I", "-c", ask], environ, folder))
    return [Path(path) for path in folders] if folders else None


def _output(words: Sequence[str], environ: Mapping[str, str], folder: Path) -> str:
    return subprocess.run(
        words, env=dict(environ), cwd=folder, check=True, capture_output=True, text=True, timeout=60
    ).stdout


def find_arguments(words: Sequence[str]) -> list[str] | None:
    """Returns what to tell `uv python find`, for the command line of a uv that installs.

    None where it installs into no environment (`uv build`, `uv pip install --target FOLDER`), or
    into a project's: what tfhvd asks for there must not depend on what is there (`uv lock`).

    Example:
        >>> find_arguments(["uv", "pip", "install", "-p", "3.12", "."])
        ['3.12']
    """
    if "pip" not in words:
        return None
    named: list[str] = []
    for position, word in enumerate(words[1:], 1):
        name, equals, value = word.partition("=")
        if name in _NO_ENVIRONMENT:
            return None
        if name in ("-p", "--python"):
            named = [value] if equals else list(words[position + 1 : position + 2])
        elif word == "--system":
            named = [word]
    return named
