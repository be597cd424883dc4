"""The environment of programs that tests start."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# What their Pythons run first: see sitecustomize.py there.
SITE = ROOT / "tests" / "site"


def python_path() -> str:
    """PYTHONPATH, with this tree at its head."""
    return os.pathsep.join(map(str, filter(None, [ROOT, SITE, os.environ.get("PYTHONPATH")])))


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": python_path(), **more}
