"""What every test of this folder must leave as it was."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import mpi
import pytest


@pytest.fixture(autouse=True)
def nothing_left_in_shared_memory() -> Iterator[None]:
    folder = Path("/dev/shm")
    before = set(folder.iterdir())
    yield
    mpi.wait_for(lambda: set(folder.iterdir()) <= before, 30)
