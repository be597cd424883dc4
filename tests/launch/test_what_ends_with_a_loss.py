"""What does not go on where a rank of an elastic job is lost, and what takes its place."""

from __future__ import annotations

import json
import sys

import pytest
from launching import launch, script, wait_until_gone

pytestmark = pytest.mark.thorough

JOB = """
import tensorflow as tf
import tfhvd as hvd
hvd.init()
start = hvd.rank()
pair = hvd.add_process_set([0, 1])

@tf.function
def in_the_pair():
    return hvd.allreduce(1.0, op=hvd.Sum, process_set=pair)

if start < 2:
    assert in_the_pair() == 2
hvd.start_timeline(f"{os.path.dirname(__file__)}/before.{{rank}}.json")
for step in range(60):
    if start == 2 and step == 30:
        os.kill(os.getpid(), signal.SIGKILL)
    hvd.allreduce(1.0, name="steps")
assert hvd.size() == 2 and hvd.rank() == start
assert hvd.metrics().tensors <= 31, hvd.metrics()  # of 61 or 62

calls = [in_the_pair, lambda: hvd.allreduce(1.0, op=hvd.Sum, process_set=pair)]
for call in calls:
    try:
        call()
    except tf.errors.AbortedError as error:
        print(f"{start}: {error.message!r}")
alone = hvd.add_process_set([1])
assert alone.process_set_id != pair.process_set_id
if start == 1:
    assert hvd.allreduce(1.0, op=hvd.Sum, process_set=alone) == 1
assert not hvd.remove_process_set(pair) and pair.process_set_id not in (
    hvd.get_process_set_ids_and_ranks())
assert hvd.remove_process_set(alone)
alone = hvd.add_process_set(alone)  # a number of its own again
assert alone.process_set_id in hvd.get_process_set_ids_and_ranks()

hvd.start_timeline(f"{os.path.dirname(__file__)}/after.{{rank}}.json")
hvd.allreduce(1.0, name="later")
hvd.stop_timeline()
hvd.shutdown()
try:
    hvd.init()
except hvd.PeerLostError as error:
    print(f"{start}: init: {error}", flush=True)
"""


def test_process_sets_timelines_counts_and_another_init(tmp_path):
    path = script(tmp_path, JOB)
    job = launch("-np", 3, "--elastic", "--no-prefix", sys.executable, path)
    assert job.code == 0, job.err
    assert wait_until_gone(str(path)) == []
    for rank in (0, 1):
        said = [line for line in job.out.splitlines() if line.startswith(f"{rank}: ")]
        assert len(said) == 3, job.out
        for line in said[:2]:
            assert "process set 1 ended when ranks were lost, or came" in line
            assert "hvd.add_process_set(...)" in line
        assert "init: " in said[2] and "lost rank 2" in said[2]
        # The timeline that was there at the loss ends with it; the next one is as any other.
        before = json.loads((tmp_path / f"before.{rank}.json").read_text())
        errors = [event["args"]["error"] for event in before if "error" in event.get("args", {})]
        assert errors == ["the job continues without ranks that failed"]
        after = json.loads((tmp_path / f"after.{rank}.json").read_text())
        assert any("later" in str(event) for event in after)
