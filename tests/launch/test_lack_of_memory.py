"""A rank of an elastic job that lacks memory for a result: that collective fails on all ranks."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from launching import launch, script

pytestmark = [pytest.mark.usefixtures("preloaded_jobs"), pytest.mark.thorough]

PROGRAM = """
import tensorflow as tf
import tfhvd as hvd
sys.path.append("TESTS")
from memory_limit import no_more_than

hvd.init()
x = tf.ones([16 << 20])
for turn in range(3):
    poor = turn % hvd.size()
    for collective in (hvd.allgather, hvd.allreduce):
        try:
            with no_more_than(24 << 20 if hvd.rank() == poor else 1 << 40):
                collective(x, name="big")
        except tf.errors.UnavailableError as error:
            assert f"'big' has failed on every rank: rank {poor} cannot get the" in str(error)
        else:
            raise AssertionError("it did not fail")
        assert float(hvd.allreduce(1.0, op=hvd.Sum, name="next")) == hvd.size()
        assert collective(tf.ones([4]), name="big").shape[0] >= 4
print(f"rank {hvd.rank()} is through\\n", end="", flush=True)
"""


@pytest.mark.parametrize("elastic", [["--elastic"], []], ids=["elastic", "fixed"])
def test_it_fails_on_all_ranks_and_the_job_goes_on(tmp_path, elastic):
    path = script(tmp_path, PROGRAM.replace("TESTS", str(Path(__file__).parents[1])))
    words = ("-np", 2, *elastic, "--no-prefix")
    result = launch(*words, sys.executable, path, timeout=100)
    assert result.code == 0, result.err
    assert sorted(result.out.splitlines()) == ["rank 0 is through", "rank 1 is through"]
