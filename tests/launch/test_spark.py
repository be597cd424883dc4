"""tfhvd.spark.run on a Spark of this machine."""

from __future__ import annotations

import shutil
import sys

import launching
import pytest
from cluster_work import MARK, work

from tfhvd.errors import RankFailedError

pytestmark = pytest.mark.thorough

REASON = "type: pip install pyspark, and: apt install default-jre-headless"


@pytest.fixture(scope="module", name="spark")
def _spark():
    pytest.importorskip("pyspark", reason=REASON)
    if shutil.which("java") is None:
        pytest.skip(REASON)
    from pyspark.sql import SparkSession

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", launching.environment()["PYTHONPATH"])
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        session = (
            SparkSession.builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.host", "127.0.0.1")
            .getOrCreate()
        )
        yield session
        session.stop()


def test_results(spark):
    import tfhvd.spark

    results = tfhvd.spark.run(work, (10,), env={MARK: "yes"})
    assert results == [(21.0, rank, "yes") for rank in range(2)]
    assert tfhvd.spark.run(work, (10,), num_proc=1, env={MARK: "x"}) == [(10.0, 0, "x")]


def test_a_rank_that_raises_is_named(spark):
    import tfhvd.spark

    with pytest.raises(RankFailedError, match=r"rank 1 .*KeyError: 'no such sample'") as e:
        tfhvd.spark.run(work, (10,), {"fails_on": 1}, num_proc=2, env={MARK: ""})
    assert e.value.rank == 1
    assert isinstance(e.value.__cause__, KeyError)


def test_machines(spark):
    import tfhvd.spark
    from tfhvd.launch.run.node import Node
    from tfhvd.spark import _nodes

    with pytest.raises(ValueError, match="num_proc=0"):
        tfhvd.spark.run(work, num_proc=0)
    found = [("b", 1), ("a", 2), ("b", 3)]
    assert _nodes(found) == [Node("b", 1, slots=2), Node("a", 2, slots=1)]
