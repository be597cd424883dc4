"""hvd.join: ranks with less data than others."""

import numpy as np
import pytest
import tensorflow as tf

import tfhvd as hvd

pytestmark = pytest.mark.ranks(1, 2)


@pytest.mark.ranks(1, 2, 4)
def test_ranks_with_fewer_steps_bring_zeros():
    @tf.function
    def step(x):
        return (
            hvd.allreduce(x, op=hvd.Sum, name="sum"),
            hvd.allreduce(x, name="mean"),
            hvd.allgather(x, name="rows"),
        )

    for _ in range(3):
        for i in range(2 * (hvd.rank() + 1)):
            there = [rank for rank in range(hvd.size()) if 2 * (rank + 1) > i]
            total, mean, rows = step(tf.fill([2], float(hvd.rank() + 1)))
            expected = sum(rank + 1 for rank in there)
            np.testing.assert_array_equal(total, [expected] * 2)
            np.testing.assert_array_equal(mean, [expected / hvd.size()] * 2)
            np.testing.assert_array_equal(rows, np.repeat(there, 2) + 1.0)
        assert hvd.join() == hvd.size() - 1


def test_the_last_rank_may_have_the_state():
    variable = tf.Variable(float(hvd.rank()))
    last = hvd.join()
    hvd.broadcast_variables([variable], root_rank=last)
    assert variable == last


@pytest.mark.ranks(2)
def test_what_needs_their_data_fails_meanwhile():
    if hvd.rank() == 1:
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"ranks \[0\] have joined"):
            hvd.alltoall(tf.ones([2]))
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"Received: Min. Expected: Sum"):
            hvd.allreduce(tf.ones([2]), op=hvd.Min)
        with pytest.raises(tf.errors.InvalidArgumentError, match="a root that has not joined"):
            hvd.broadcast(tf.ones([2]), root_rank=0)
        assert hvd.allreduce(1.0, op=hvd.Sum) == 1.0
    assert hvd.join() == 1
    assert hvd.allreduce(1.0, op=hvd.Sum) == hvd.size()
