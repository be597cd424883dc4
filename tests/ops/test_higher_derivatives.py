"""Derivatives of reduced gradients, and collectives that run for a stack of inputs."""

import contextlib

import numpy as np
import pytest
import tensorflow as tf
from modes import in_all_modes, in_both_modes, run
from variants import also

import tfhvd as hvd

pytestmark = pytest.mark.ranks(1, 2)


def _rows():
    """How many each rank has: 4, 6, ..."""
    return [4 + 2 * rank for rank in range(hvd.size())]


def _data(equal):
    """Returns the data of all ranks, and where this rank's begin and end."""
    rows = [4] * hvd.size() if equal else _rows()
    random = np.random.default_rng(0)
    x = random.normal(size=(sum(rows), 3)).astype(np.float32)
    y = random.normal(size=(sum(rows), 1)).astype(np.float32)
    begin = sum(rows[: hvd.rank()])
    return x, y, slice(begin, begin + rows[hvd.rank()])


def _variables():
    random = np.random.default_rng(1)
    return [tf.Variable(random.normal(size=s).astype(np.float32)) for s in ((3, 4), (4, 1))]


def _loss(weights, x, y):
    return tf.reduce_mean((tf.matmul(tf.tanh(tf.matmul(x, weights[0])), weights[1]) - y) ** 2)


def _twice(function, gradient_of, weights, x, y):
    """The gradient of a function of the loss and the loss' gradients."""
    with tf.GradientTape() as outer:
        with tf.GradientTape() as inner:
            loss = _loss(weights, x, y)
        result = function(loss, gradient_of(inner, loss, weights), (weights, x, y))
    return gradient_of(outer, result, weights)


def _penalty(loss, gradients, _):
    return loss + tf.add_n([tf.reduce_sum(g * g) for g in gradients])


def _hessian_product(_, gradients, __):
    return tf.add_n([tf.reduce_sum(g) for g in gradients])


def _meta(_, gradients, of):
    """The loss after one step of gradient descent."""
    weights, x, y = of
    return _loss([w - 0.1 * g for w, g in zip(weights, gradients)], x, y)


@in_all_modes
@pytest.mark.parametrize("equal", [False, also(True)], ids=["unequal", "equal"])
def test_reduced_gradients_can_be_differentiated(mode, equal):
    x, y, mine = _data(equal)
    weights = _variables()

    def derivatives(gradient_of, x, y):
        every = [_twice(f, gradient_of, weights, x, y) for f in (_penalty, _hessian_product, _meta)]
        return tf.nest.flatten(every)

    def distributed(tape, loss, variables):
        return hvd.DistributedGradientTape(tape).gradient(loss, variables)

    def step(x, y):
        with contextlib.nullcontext() if equal else hvd.batch_weight(x.shape[0]):
            return derivatives(distributed, x, y)

    def alone(tape, loss, variables):
        return tape.gradient(loss, variables)

    expected = derivatives(alone, tf.constant(x), tf.constant(y))
    gradients = run(mode, step, tf.constant(x[mine]), tf.constant(y[mine]))
    for gradient, value in zip(gradients, expected):
        np.testing.assert_allclose(gradient, value, rtol=2e-5, atol=1e-6)


@in_all_modes
@pytest.mark.parametrize("pfor", [True, False], ids=["at once", "in turn"])
def test_jacobian(mode, pfor):
    def f(x):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            y = hvd.allreduce(x * x, op=hvd.Sum, name="squares") + hvd.broadcast(x, 0, name="x")
        return tape.jacobian(y, x, experimental_use_pfor=pfor)

    x = tf.constant([1.0, 2.0, 3.0]) * (hvd.rank() + 1)
    own = np.eye(3) * hvd.size() if hvd.rank() == 0 else np.zeros((3, 3))
    expected = np.diag(2 * x.numpy()) * hvd.size() + own
    np.testing.assert_allclose(run(mode, f, x), expected, rtol=1e-6)


@in_all_modes
def test_a_map_over_collectives(mode):
    def row(value):
        return {
            "mean": hvd.allreduce(value, name="mean"),
            "group": hvd.grouped_allreduce([value, value[:1]], op=hvd.Max, name="group"),
            "root": hvd.broadcast(value, 0, name="root"),
            "same": hvd.allreduce(tf.ones([]), op=hvd.Sum, name="same") * value,
        }

    every = [np.arange(8.0).reshape(4, 2).astype(np.float32) * (r + 1) for r in range(hvd.size())]
    stack = tf.constant(every[hvd.rank()])
    at_once = run(mode, lambda x: tf.vectorized_map(row, x), stack)
    spec = dict.fromkeys(("mean", "root", "same"), tf.float32) | {"group": [tf.float32] * 2}
    in_turn = run(mode, lambda x: tf.map_fn(row, x, fn_output_signature=spec), stack)
    for result in (at_once, in_turn):
        np.testing.assert_allclose(result["mean"], np.mean(every, 0), rtol=1e-6)
        np.testing.assert_array_equal(result["group"][0], np.max(every, 0))
        np.testing.assert_array_equal(result["group"][1], np.max(every, 0)[:, :1])
        np.testing.assert_array_equal(result["root"], every[0])
        np.testing.assert_array_equal(result["same"], stack * hvd.size())


@in_both_modes
@pytest.mark.parametrize("kind", ["allgather", "adasum", "reducescatter", "alltoall"])
def test_what_cannot_run_for_a_stack_is_refused(mode, kind):
    collectives = {
        "allgather": hvd.allgather,
        "adasum": lambda x: hvd.allreduce(x, op=hvd.Adasum),
        "reducescatter": hvd.reducescatter,
        "alltoall": lambda x: hvd.alltoall(x),
    }
    with pytest.raises(NotImplementedError, match=r"Use tf\.map_fn, or jacobian"):
        run(mode, lambda x: tf.vectorized_map(collectives[kind], x), tf.ones([3, 2]))
