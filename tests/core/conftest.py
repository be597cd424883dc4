"""The programs of this folder, built once."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from build_tools import core_tests, machine

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="session")
def programs() -> Path:
    """Builds all programs for $MACHINE, with the sanitizer of $SANITIZE; returns their folder."""
    sanitize = os.environ.get("SANITIZE", "")
    target = machine.named(os.environ.get("MACHINE", platform.machine()))
    command = [sys.executable, "setup.py", "-q", "build_core_tests", f"--sanitize={sanitize}"]
    command += [f"--machine={target.name}"]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout[-8000:] + built.stderr[-8000:]
    return core_tests.core_tests_folder(ROOT / "build", sanitize, target)
