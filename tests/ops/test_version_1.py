"""A program that switches TensorFlow 2 off as a whole: other variables, other control flow."""

from __future__ import annotations

import mpi
import pytest

PROGRAM = """
import numpy as np
import tensorflow.compat.v1 as tf
import tfhvd as hvd

tf.disable_v2_behavior()
hvd.init()
me = hvd.rank() + 1.0

for passes in (1, 2):
    tf.reset_default_graph()
    start = tf.constant_initializer(10.0 * me)
    dense, table = (tf.get_variable(name, [3], initializer=start) for name in ("dense", "table"))
    optimizer = hvd.DistributedOptimizer(
        tf.train.MomentumOptimizer(0.5, momentum=0.5), backward_passes_per_step=passes
    )
    loss = tf.reduce_sum(dense) + tf.reduce_sum(tf.gather(table, [1, 1]))
    step = optimizer.minimize(loss * me, global_step=tf.train.get_or_create_global_step())
    hooks = [hvd.BroadcastGlobalVariablesHook(0)]
    with tf.train.MonitoredTrainingSession(hooks=hooks) as session:
        for _ in range(passes):
            session.run(step)
        update = 0.5 * 1.5 * passes
        np.testing.assert_allclose(session.run(dense), [10.0 - update] * 3)
        np.testing.assert_allclose(session.run(table), [10.0, 10.0 - 2 * update, 10.0])

tf.reset_default_graph()
x = tf.placeholder(tf.float32, [])
reduced = hvd.allreduce(x * me, op=hvd.Sum)
branch = tf.cond(x > 0, lambda: hvd.allreduce(x, op=hvd.Sum), lambda: x)
twice = lambda i, y: (i + 1, hvd.allreduce(y, op=hvd.Sum))
loop = tf.while_loop(lambda i, y: i < 3, twice, [0, x])[1]
fetches = [reduced, *tf.gradients(reduced, x), *hvd.grouped_allreduce([x, 2 * x]), branch, loop]
with tf.Session() as session:
    assert session.run(fetches, {x: 1.0}) == [3.0, 2.0 * me, 1.0, 2.0, 2.0, 8.0]
    assert session.run(hvd.allgather(tf.fill([int(me)], me))).tolist() == [1.0, 2.0, 2.0]
    assert hvd.broadcast_object(hvd.rank() + 5, 1) == 6
print("right")
"""


@pytest.mark.thorough
@pytest.mark.variant
def test_variables_and_control_flow_of_version_1():
    job = mpi.run_ranks(2, PROGRAM)
    assert [rank.code for rank in job.ranks] == [0, 0], job
    assert [rank.out for rank in job.ranks] == ["right\n"] * 2, job
    assert not job.left
