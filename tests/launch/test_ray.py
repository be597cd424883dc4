"""tfhvd.ray.run on a Ray cluster of this machine."""

from __future__ import annotations

import os
import tempfile

import launching
import pytest
from cluster_work import MARK, work

from tfhvd.errors import RankFailedError, TfhvdError

pytestmark = pytest.mark.thorough

REASON = "type: pip install -r tests/requirements-clusters.txt"


@pytest.fixture(scope="module", name="ray")
def _ray():
    with (
        pytest.MonkeyPatch.context() as patch,
        tempfile.TemporaryDirectory(prefix="ray-") as folder,
    ):
        # Ray writes to the environment, such as its debugger for breakpoint(): none of it is left.
        before = dict(os.environ)
        patch.setenv("RAY_AUTH_MODE", "disabled")  # else it leaves a token in the home folder
        ray = pytest.importorskip("ray", reason=REASON)
        path = launching.environment()["PYTHONPATH"]
        ray.init(
            num_cpus=3,
            include_dashboard=False,
            log_to_driver=False,
            runtime_env={"env_vars": {"PYTHONPATH": path}},
            # Not in the folder of the tests: the names of Ray's sockets must be short.
            _temp_dir=folder,
        )
        yield ray
        ray.shutdown()
        for name in os.environ.keys() - before.keys():
            del os.environ[name]


@pytest.mark.parametrize("encrypts", [False, True])
def test_results_and_cores(ray, monkeypatch, encrypts):
    import tfhvd.ray

    monkeypatch.setenv("TFHVD_ENCRYPT", str(int(encrypts)))
    for _ in range(2):  # what the first took has been given back
        results = tfhvd.ray.run(work, (10,), num_workers=3, env={MARK: "yes"})
        assert results == [(33.0, rank, "yes") for rank in range(3)]


def test_a_rank_that_raises_is_named(ray):
    import tfhvd.ray

    with pytest.raises(RankFailedError, match=r"rank 1 .*KeyError: 'no such sample'") as e:
        tfhvd.ray.run(work, (10,), {"fails_on": 1}, num_workers=2, env={MARK: ""})
    assert e.value.rank == 1
    assert isinstance(e.value.__cause__, KeyError)


def test_no_room(ray):
    import tfhvd.ray

    with pytest.raises(TfhvdError, match=r"no room for 4 workers with {'CPU': 1} each"):
        tfhvd.ray.run(work, (10,), num_workers=4, start_timeout=0.5)
    with pytest.raises(ValueError, match="num_workers=0"):
        tfhvd.ray.run(work, num_workers=0)


def test_machines_and_their_gpus():
    pytest.importorskip("ray", reason=REASON)
    from tfhvd.launch.run.node import Node
    from tfhvd.ray import _nodes

    found = [("a", 1, ["3"]), ("b", 2, []), ("a", 3, ["0"]), ("a", 4, ["3"])]
    nodes, node_env = _nodes(found)
    assert nodes == [Node("a", 1, slots=3), Node("b", 2, slots=1)]
    assert node_env == {"a": {"CUDA_VISIBLE_DEVICES": "3,0"}}
