"""Steps that TensorFlow cancels while a collective is under way."""

import gc
import threading

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import cancellation

import tfhvd as hvd

pytestmark = pytest.mark.ranks(2)

BIG = [1 << 18]


def fails(x):
    """A tensor of ones, or an error where x is not positive."""
    with tf.control_dependencies([tf.debugging.assert_positive(x, "not positive")]):
        return tf.ones(BIG)


@pytest.mark.parametrize("kind", ["allreduce", "allgather", "broadcast", "group"])
def test_another_operation_of_the_step_fails(kind):
    calls = {
        "allreduce": lambda x: hvd.allreduce(x, op=hvd.Sum, name="lonely"),
        "allgather": lambda x: hvd.allgather(x, name="lonely"),
        "broadcast": lambda x: hvd.broadcast(x, 1, name="lonely"),
        "group": lambda x: hvd.grouped_allreduce([x, x], op=hvd.Sum, name="lonely")[0],
    }

    @tf.function
    def f(x):
        return calls[kind](tf.ones(BIG)) + fails(x)[0]

    for _ in range(5):
        if hvd.rank() == 0:  # Alone: only the failure can end this step.
            with pytest.raises(tf.errors.InvalidArgumentError, match="not positive"):
                f(tf.constant(-1.0))
            gc.collect()
        hvd.barrier()
        result = f(tf.constant(1.0))
        expected = {"allreduce": 3.0, "allgather": 2.0, "broadcast": 2.0, "group": 3.0}[kind]
        np.testing.assert_array_equal(result[:100], np.full(100, expected))


def test_the_failure_comes_on_every_rank_at_any_moment():
    @tf.function
    def f(x):
        parts = [hvd.allreduce(tf.ones([100]) * i, name=f"race.{i}") for i in range(30)]
        return tf.add_n(parts) + fails(x)[0]

    for step in range(20):
        if step % 2:
            with pytest.raises(tf.errors.InvalidArgumentError, match="not positive"):
                f(tf.constant(-1.0))
        else:
            f(tf.constant(1.0))
        hvd.barrier()  # What one rank has taken back must not meet what another one begins anew.


def test_a_call_that_is_cancelled_from_outside():
    @tf.function
    def f(x):
        return hvd.allreduce(x, op=hvd.Sum, name="cancelled")

    x = tf.ones(BIG)
    function = f.get_concrete_function(x)
    for _ in range(5):
        if hvd.rank() == 0:
            manager = cancellation.CancellationManager()
            timer = threading.Timer(0.05, manager.start_cancel)
            timer.start()
            with pytest.raises(tf.errors.CancelledError):
                manager.get_cancelable_function(function)(x)
            timer.join()
        hvd.barrier()
        assert f(x)[0] == 2.0


def test_a_call_that_was_cancelled_before_it_began():
    function = tf.function(lambda x: hvd.allreduce(x, name="too late"))
    x = tf.constant(1.0)
    concrete = function.get_concrete_function(x)
    manager = cancellation.CancellationManager()
    manager.start_cancel()
    with pytest.raises(tf.errors.CancelledError):
        manager.get_cancelable_function(concrete)(x)
    assert function(x) == 1.0
