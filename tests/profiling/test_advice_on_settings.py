"""The report's advice on a setting, tried: each value of it has a job of its own."""

import json

import mpi
import pytest

PROGRAM = """
import json, statistics
import tensorflow as tf
import tfhvd as hvd
hvd.init()
tensors = [tf.ones(10) for _ in range(300)]
step = tf.function(lambda: hvd.grouped_allreduce(tensors, name="group")[0])
for _ in range(5):
    step()
profile = hvd.profile(20, quiet=True)
while profile.report is None:
    step()
    profile.step()
usual = statistics.median(one.whole for steps in profile.report.steps.values() for one in steps)
print(json.dumps({"usual": usual, "said": profile.report.lines()}))
"""
ADVICE = "raise TFHVD_FUSION_THRESHOLD"


@pytest.mark.thorough
def test_a_fusion_threshold_that_is_too_small():
    usual = {}
    for threshold in ("0", "134217728"):  # the second one is the default
        job = mpi.run_ranks(2, PROGRAM, env={"TFHVD_FUSION_THRESHOLD": threshold})
        assert job.code == 0, job
        found = json.loads(job.ranks[0].out)
        text = "\n".join(found["said"])
        assert (ADVICE in text) == (threshold == "0"), text
        calls = "300.0 tensors in 300.0 calls" if threshold == "0" else "300.0 tensors in 1.0 calls"
        assert calls in text, text
        usual[threshold] = found["usual"]
    assert usual["134217728"] < usual["0"], usual
