"""Which collectives before `fit` keep ranks that come later from being let in there."""

from __future__ import annotations

import mpi
import pytest

pytestmark = pytest.mark.thorough

PROGRAM = """
import numpy as np
import tensorflow as tf
import tfhvd as hvd
from tfhvd.runtime.elastic.replay import comers

hvd.init()
hvd.barrier()
hvd.shard(tf.data.Dataset.range(8))
hvd.shard(np.ones([4, 2]))
hvd.get_process_set_ids_and_ranks()
hvd.start_timeline("timeline.json")
hvd.stop_timeline()
assert not comers.would_miss
with comers.do_without() as takes_part:
    assert takes_part
    hvd.allreduce(1.0)
assert not comers.would_miss
for collective in (
    lambda: hvd.broadcast_object(1),
    lambda: hvd.broadcast_variables([tf.Variable(1.0)], 0),
    lambda: hvd.join(),
    tf.function(hvd.barrier),
    lambda: hvd.remove_process_set(hvd.add_process_set([1])),
):
    collective()
    assert comers.would_miss
    comers.forget()
hvd.allreduce(1.0)
hvd.shutdown()
assert not comers.would_miss
"""


def test_what_they_would_wait_for_and_what_they_do_without():
    job = mpi.run_ranks(2, PROGRAM)
    assert job.code == 0, job
