"""tfhvd.dask.run on a Dask cluster of this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import launching
import pytest
from cluster_work import MARK, work

from tfhvd.errors import RankFailedError, TfhvdError

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module", name="client")
def _client():
    distributed = pytest.importorskip(
        "distributed", reason="type: pip install -r tests/requirements-clusters.txt"
    )
    path = launching.environment()["PYTHONPATH"]
    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            dashboard_address=None,
            env={"PYTHONPATH": path},
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.mark.parametrize("encrypts", [False, True])
def test_results(client, monkeypatch, encrypts):
    import tfhvd.dask

    monkeypatch.setenv("TFHVD_ENCRYPT", str(int(encrypts)))
    results = tfhvd.dask.run(work, (10,), env={MARK: "yes"})
    assert results == [(21.0, rank, "yes") for rank in range(2)]
    results = tfhvd.dask.run(work, (10,), num_workers=1, client=client, env={MARK: "yes"})
    assert results == [(10.0, 0, "yes")]


def test_a_rank_that_raises_is_named(client):
    import tfhvd.dask

    with pytest.raises(RankFailedError, match=r"rank 1 .*KeyError: 'no such sample'") as e:
        tfhvd.dask.run(work, (10,), {"fails_on": 1}, env={MARK: ""})
    assert e.value.rank == 1
    assert isinstance(e.value.__cause__, KeyError)


def _stays(mark: str) -> None:
    """What a rank does until its job is ended: its mark is in the command line of a child."""
    code = "import pathlib, sys, time; pathlib.Path(sys.argv[1]).touch(); time.sleep(600)"
    subprocess.run([sys.executable, "-c", code, mark])


def _when_there(mark: Path, act: Callable[[], None]) -> None:
    def wait() -> None:
        while not mark.exists():
            time.sleep(0.05)
        act()

    threading.Thread(target=wait, daemon=True).start()


def test_ctrl_c_ends_the_job(client, tmp_path):
    import tfhvd.dask

    mark = tmp_path / "mark"
    _when_there(mark, lambda: os.kill(os.getpid(), signal.SIGINT))
    # As in a terminal: a shell's background job ignores it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            tfhvd.dask.run(_stays, (str(mark),), num_workers=1)
    finally:
        signal.signal(signal.SIGINT, before)
    assert launching.wait_until_gone(str(mark)) == []
    assert tfhvd.dask.run(work, (1,), env={MARK: ""}) == [(3.0, 0, ""), (3.0, 1, "")]


def test_the_first_worker_is_lost(client, tmp_path):
    import tfhvd.dask

    mark = tmp_path / "mark"
    processes = client.run(os.getpid)
    first = next(iter(client.scheduler_info(n_workers=-1)["workers"]))
    _when_there(mark, lambda: os.kill(processes[first], signal.SIGKILL))
    with pytest.raises(TfhvdError, match=f"worker {first}, which ran rank 0, has failed"):
        tfhvd.dask.run(_stays, (str(mark),), num_workers=1)
    assert launching.wait_until_gone(str(mark)) == []
    client.wait_for_workers(2, timeout=60)


def test_too_few_workers(client):
    import tfhvd.dask

    with pytest.raises(TfhvdError, match="has 2 workers, and num_workers=3 asks for more"):
        tfhvd.dask.run(work, (10,), num_workers=3)
    with pytest.raises(ValueError, match="num_workers=0"):
        tfhvd.dask.run(work, num_workers=0)


def test_workers_of_one_machine_stand_together():
    pytest.importorskip(
        "distributed", reason="type: pip install -r tests/requirements-clusters.txt"
    )
    from tfhvd.dask import _chosen

    workers = {name: {"host": name[0]} for name in ("a1", "b1", "a2", "b2")}
    assert _chosen(workers, 3) == ["a1", "a2", "b1"]
