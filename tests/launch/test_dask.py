"""tfhvd.dask.run on a Dask cluster of this machine."""

from __future__ import annotations

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


def test_results(client):
    import tfhvd.dask

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
