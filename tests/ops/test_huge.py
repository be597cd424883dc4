"""One tensor of more than 2^31 bytes, through shared memory and through MPI."""

from __future__ import annotations

import re
from pathlib import Path

import mpi
import pytest

pytestmark = pytest.mark.thorough

ELEMENTS = 2**29 + 77  # of four bytes
# Each of two ranks holds the tensor once: it is reduced in place.
NEEDED_KIB = 2 * (4 * ELEMENTS // 1024) * 3 // 2

PROGRAM = f"""
import tensorflow as tf
import tfhvd as hvd

MARKS = [[0], [12345], [2**29 - 1], [2**29], [{ELEMENTS} - 1]]

@tf.function
def step(own_marks):
    ones = tf.fill([{ELEMENTS}], tf.reduce_min(own_marks) * 0.0 + 1.0)
    sums = hvd.allreduce(tf.tensor_scatter_nd_update(ones, MARKS, own_marks), op=hvd.Sum)
    least, marked = tf.reduce_min(sums), tf.gather_nd(sums, MARKS)
    with tf.control_dependencies([least, marked]):
        most = tf.reduce_max(tf.tensor_scatter_nd_update(sums, MARKS, [2.0] * len(MARKS)))
    return least, marked, most

hvd.init()
own = [3.0 + hvd.rank() + i for i in range(len(MARKS))]
least, marked, most = step(tf.constant(own))
assert list(marked.numpy()) == [7.0 + 2 * i for i in range(len(MARKS))], marked
assert (float(least), float(most)) == (2.0, 2.0), (least, most)
hvd.shutdown()
print("right")
"""


def available_kib() -> int:
    return int(re.search(r"MemAvailable:\s+(\d+)", Path("/proc/meminfo").read_text())[1])


@pytest.mark.skipif(
    available_kib() < NEEDED_KIB, reason=f"needs {NEEDED_KIB >> 20} GiB of free memory"
)
@pytest.mark.parametrize("means", ["shm", "mpi"])
def test_allreduce_beyond_2_to_the_31(means: str):
    job = mpi.run_ranks(2, PROGRAM, timeout=180, env={"TFHVD_CPU_OPERATIONS": means})
    assert job.code == 0, job
    assert [rank.out for rank in job.ranks] == ["right\n"] * 2, job
    assert not job.left
