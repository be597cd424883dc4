"""How the tests of the launcher start their jobs, and what they must leave as it was."""

from __future__ import annotations

from collections.abc import Callable

import launching
import mpi
import preloaded
import pytest
from shared_memory import nothing_left_in_shared_memory

__all__ = ["nothing_left_in_shared_memory", "preloaded_jobs", "start_by_fork"]


@pytest.fixture(scope="session")
def start_by_fork() -> Callable[..., object]:
    """What starts Python programs in which TensorFlow is loaded already."""
    return mpi.forks.popen()


@pytest.fixture
def preloaded_jobs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """All processes of jobs without an MPI are forks that have TensorFlow loaded: see preloaded."""
    if preloaded.POSSIBLE:
        monkeypatch.setattr(launching, "Popen", request.getfixturevalue("start_by_fork"))
