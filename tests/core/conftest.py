"""The programs of this folder, built once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="session")
def programs() -> Path:
    """Builds all programs, with the sanitizer of $SANITIZE if any; returns their folder."""
    sanitize = os.environ.get("SANITIZE", "")
    command = [sys.executable, "setup.py", "-q", "build_core_tests", f"--sanitize={sanitize}"]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout[-8000:] + built.stderr[-8000:]
    return ROOT / "build" / (f"core_tests-{sanitize}" if sanitize else "core_tests")
