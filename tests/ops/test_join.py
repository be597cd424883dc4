"""hvd.join: ranks with less data than others."""

import numpy as np
import pytest
import tensorflow as tf
from with_xla import COMPILED, needs_xla

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


@pytest.mark.ranks(1, 2, 4)
@pytest.mark.parametrize("mode", ["eager", COMPILED])
def test_reductions_and_their_gradients_are_over_who_is_there(mode):
    """What the others get is what they would get without the ranks that have joined."""

    def step(x):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            ops = (hvd.Min, hvd.Max, hvd.Product, hvd.Adasum)
            results = [hvd.allreduce(x, op=op) for op in ops]
        return results, [tape.gradient(result, x) for result in results]

    run = tf.function(step, jit_compile=True) if mode == "compiled" else step
    for i in range(hvd.rank() + 1):
        there = range(i, hvd.size())
        x = tf.constant([hvd.rank() + 2.0, 1.0])
        results, gradients = run(x)
        firsts = [r + 2.0 for r in there]
        for result, expected in zip(results, [firsts[0], firsts[-1], np.prod(firsts)]):
            np.testing.assert_allclose(result, [expected, 1.0])
        n = len(there)
        first = [n * (hvd.rank() == i), n * (hvd.rank() == hvd.size() - 1)]
        first.append(n * np.prod(firsts) / (hvd.rank() + 2))
        for gradient, expected, second in zip(gradients, first, [1, 1, n]):
            np.testing.assert_allclose(gradient, [expected, second], rtol=1e-6)
        if n == 1:
            np.testing.assert_array_equal(results[3], x)
            np.testing.assert_array_equal(gradients[3], [1.0, 1.0])
    hvd.join()


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
        with pytest.raises(
            tf.errors.InvalidArgumentError, match=r"Received: Min, prescale_factor=2. Expected: no"
        ):
            hvd.allreduce(tf.ones([2]), op=hvd.Min, prescale_factor=2.0)
        with pytest.raises(tf.errors.InvalidArgumentError, match="a root that has not joined"):
            hvd.broadcast(tf.ones([2]), root_rank=0)
        assert hvd.allreduce(1.0, op=hvd.Sum) == 1.0
    assert hvd.join() == 1
    assert hvd.allreduce(1.0, op=hvd.Sum) == hvd.size()


def test_in_a_session_it_waits_when_it_is_run():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.compat.v1.placeholder(tf.float32, [])
        total, last = hvd.allreduce(x, op=hvd.Sum), hvd.join()
        assert (last.dtype, last.shape) == (tf.int32, [])
        for _ in range(2):
            for i in range(2 * (hvd.rank() + 1)):
                there = [rank for rank in range(hvd.size()) if 2 * (rank + 1) > i]
                assert session.run(total, {x: hvd.rank() + 1.0}) == sum(r + 1 for r in there)
            assert session.run(last) == hvd.size() - 1


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=needs_xla)])
def test_a_function_cannot_join(compiled):
    @tf.function(jit_compile=compiled, autograph=False)
    def step(x):
        return hvd.allreduce(x), hvd.join()

    with pytest.raises(
        RuntimeError, match=r"cannot be called in a tf.function.* after the last step"
    ):
        step(tf.ones([2]))
    assert hvd.allreduce(1.0, op=hvd.Sum) == hvd.size()
