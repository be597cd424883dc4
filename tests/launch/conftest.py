"""How the tests of the launcher start their jobs, and what they must leave as it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import fork_server
import launching
import preloaded
import pytest
from children import environment
from shared_memory import nothing_left_in_shared_memory

__all__ = ["nothing_left_in_shared_memory", "preloaded_jobs", "start_by_fork"]


@pytest.fixture(scope="session")
def start_by_fork(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., object]]:
    """What starts Python programs where TensorFlow is loaded already."""
    env = environment(TF_CPP_MIN_LOG_LEVEL="3")
    with fork_server.running(tmp_path_factory.mktemp("forks"), env) as start:
        yield start


@pytest.fixture
def preloaded_jobs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """All processes of jobs without an MPI are forks that have TensorFlow loaded: see preloaded."""
    if preloaded.POSSIBLE:
        monkeypatch.setattr(launching, "Popen", request.getfixturevalue("start_by_fork"))
