"""The report's advice on a setting, tried: each value of it has a job of its own.

The ranks' messages go through the kernel, as between hosts: there a call of a few bytes costs many
times what TensorFlow spends on a tensor, on any machine. In shared memory it costs a tenth of that.
"""

import json
import subprocess
import sys

import children
import pytest

PROGRAM = """
import json, pathlib, statistics, sys
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
if hvd.rank() == 0:
    found = {"usual": usual, "said": profile.report.lines()}
    pathlib.Path(sys.argv[1]).write_text(json.dumps(found))
"""
ADVICE = "raise TFHVD_FUSION_THRESHOLD"


@pytest.mark.thorough
def test_a_fusion_threshold_that_is_too_small(tmp_path):
    usual = {}
    for threshold in ("0", "134217728"):  # the second one is the default
        env = children.environment(TFHVD_FUSION_THRESHOLD=threshold, TFHVD_CPU_OPERATIONS="mpi")
        launcher = [sys.executable, "-m", "tfhvd.launch", "-np", "2", "--transport", "tcp"]
        file = tmp_path / threshold
        job = subprocess.run(
            [*launcher, sys.executable, "-c", PROGRAM, file],
            env=env,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert job.returncode == 0, job.stderr
        found = json.loads(file.read_text(encoding="utf-8"))
        text = "\n".join(found["said"])
        assert (ADVICE in text) == (threshold == "0"), text
        calls = "300.0 tensors in 300.0 calls" if threshold == "0" else "300.0 tensors in 1.0 calls"
        assert calls in text, text
        usual[threshold] = found["usual"]
    assert usual["134217728"] < usual["0"], usual
