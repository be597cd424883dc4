"""Graphs and sessions, as in TensorFlow 1."""

import numpy as np
import pytest
import tensorflow as tf

import tfhvd as hvd

pytestmark = pytest.mark.ranks(1, 2)

v1 = tf.compat.v1


def mean():
    return np.mean([rank + 1.0 for rank in range(hvd.size())])


def test_operations_and_their_gradients():
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [2])
        y = hvd.allreduce(x, op=hvd.Sum)
        [gradient] = tf.gradients(y * (hvd.rank() + 1.0), x)
        rows = hvd.allgather(x[tf.newaxis])
        of_root = hvd.broadcast(x, root_rank=hvd.size() - 1)
        for factor in (1.0, 3.0):
            given = factor * np.array([1.0, hvd.rank()])
            results = session.run([y, gradient, rows, of_root], {x: given})
            every = [factor * np.array([1.0, rank]) for rank in range(hvd.size())]
            expected = [np.sum(every, 0), [hvd.size() * mean()] * 2, every, every[-1]]
            for actual, wanted in zip(results, expected):
                np.testing.assert_allclose(actual, wanted)


def test_broadcast_global_variables():
    with tf.Graph().as_default(), v1.Session() as session:
        weights = v1.get_variable("weights", initializer=tf.fill([3], float(hvd.rank())))
        count = v1.get_variable("count", initializer=tf.constant(hvd.rank(), tf.int64))
        start = hvd.broadcast_global_variables(hvd.size() - 1)
        session.run(v1.global_variables_initializer())
        session.run(start)
        last = hvd.size() - 1
        np.testing.assert_array_equal(session.run(weights), [last] * 3)
        assert session.run(count) == last
    with pytest.raises(RuntimeError, match=r"Expected: hvd.broadcast_variables"):
        hvd.broadcast_global_variables(0)


@pytest.mark.parametrize("passes", [1, 2])
def test_training_in_a_monitored_session(passes):
    with tf.Graph().as_default():
        weight = v1.get_variable("weight", initializer=10.0 * (hvd.rank() + 1))
        step = v1.train.get_or_create_global_step()
        optimizer = hvd.DistributedOptimizer(
            v1.train.MomentumOptimizer(0.5, momentum=0.5), backward_passes_per_step=passes
        )
        train = optimizer.minimize(weight * (hvd.rank() + 1.0), global_step=step)
        hooks = [hvd.BroadcastGlobalVariablesHook(0)]
        value, velocity = 10.0, 0.0
        with v1.train.MonitoredTrainingSession(hooks=hooks) as session:
            assert session.run(weight) == value
            for number in range(4):
                session.run(train)
                if number % passes == passes - 1:
                    velocity = 0.5 * velocity + passes * mean()
                    value -= 0.5 * velocity
                np.testing.assert_allclose(session.run(weight), value)
            assert session.run(step) == 4 // passes
