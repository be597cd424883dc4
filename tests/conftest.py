"""Runs tests marked `ranks(1, 2, ...)` on every rank of a job: see ranks.py."""

from __future__ import annotations

import logging
import os
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import children
import fork_server
import mpi
import pytest
import rank_worker
import ranks
import shares

# For build_tools, which is not installed. At the end, so that tfhvd is the one that is installed.
sys.path.append(str(mpi.ROOT))
runpy.run_path(str(children.SITE / "sitecustomize.py"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--share", type=shares.Share.parse, help="a part of the tests, such as 2/3")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "ranks(*sizes): run on every rank of jobs of these sizes; see tests/ranks.py"
    )
    if ranks.is_worker():
        folder = Path(os.environ[ranks.WORKER])
        worker = rank_worker.Worker(folder, int(os.environ["TFHVD_TEST_RANKS"]))
        config.pluginmanager.register(worker)
    else:
        mpi.forks = fork_server.Server()


def pytest_unconfigure() -> None:
    if mpi.forks is not None:
        mpi.forks.stop()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    ranks.parametrize(metafunc)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    share = config.getoption("share")
    if share is not None:
        others = [item for item in items if not share.has(item.nodeid)]
        items[:] = [item for item in items if share.has(item.nodeid)]
        config.hook.pytest_deselected(items=others)
    if not ranks.is_worker():
        ranks.hand_over(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    import side_by_side

    return side_by_side.Scheduler(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    report = yield
    if isinstance(item, ranks.RankItem) and call.when == "call":
        report.duration = item.seconds  # not those of the job, which has run the others, too
    return report


@pytest.fixture
def number_of_ranks(request: pytest.FixtureRequest) -> int:
    """The size of the job; given to tests marked `ranks`."""
    return request.param


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """Returns what tfhvd has warned of."""
    caplog.set_level(logging.WARNING, "tfhvd")
    return lambda: [r.getMessage() for r in caplog.records if r.name == "tfhvd"]
