"""hvd.broadcast: the root's tensor on every rank."""

import numpy as np
import pytest
import tensorflow as tf
from modes import COMPLEX, FLOATS, NUMBERS, in_both_modes, mine, numbers, of_ranks, run

import tfhvd as hvd

pytestmark = pytest.mark.ranks(1, 2)


@in_both_modes
@pytest.mark.ranks(1, 2, 4)
def test_every_type_and_root(mode):
    for root in range(hvd.size()):
        for dtype in (*NUMBERS, *COMPLEX, tf.bool):
            values = of_ranks((3, 2), dtype)
            result = run(mode, lambda x, r=root: hvd.broadcast(x, root_rank=r), mine(values, dtype))
            assert result.dtype == dtype
            expected = numbers(tf.cast(tf.constant(values[root]), dtype))
            np.testing.assert_array_equal(numbers(result), expected)


@in_both_modes
@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0), (300, 1001)], ids=str)
def test_every_size(mode, shape):
    values = of_ranks(shape, tf.float32)
    result = run(mode, lambda x: hvd.broadcast(x, 0), mine(values, tf.float32))
    np.testing.assert_array_equal(result, values[0])


def test_the_input_stays_as_it_was():
    x = tf.constant([1.0, 2.0]) * (hvd.rank() + 1)
    variable = tf.Variable(x)
    for root in range(hvd.size()):
        hvd.broadcast(x, root)
        hvd.broadcast(variable, root)
    np.testing.assert_array_equal(x, np.array([1.0, 2.0]) * (hvd.rank() + 1))
    np.testing.assert_array_equal(variable, x)


def test_the_roots_variable_may_change_afterwards():
    variable = tf.Variable([1.0, 2.0])

    @tf.function
    def f():
        result = hvd.broadcast(variable, 0)
        variable.assign_add([1.0, 1.0])
        return result

    np.testing.assert_array_equal(f(), [1.0, 2.0])
    np.testing.assert_array_equal(f(), [2.0, 3.0])


@in_both_modes
@pytest.mark.ranks(1, 2, 4)
def test_gradient_goes_to_the_root(mode):
    for dtype in FLOATS:
        for root in range(hvd.size()):

            def f(x, root=root):
                with tf.GradientTape() as tape:
                    tape.watch(x)
                    y = hvd.broadcast(x, root) * tf.cast(hvd.rank() + 1, x.dtype)
                    loss = tf.reduce_sum(y)
                return tape.gradient(loss, x)

            gradient = run(mode, f, tf.ones([2], dtype))
            total = sum(range(1, hvd.size() + 1))
            expected = total if hvd.rank() == root else 0
            np.testing.assert_array_equal(numbers(gradient), [expected, expected])


@in_both_modes
@pytest.mark.parametrize(
    "kind, root, text",
    [
        (ValueError, -1, "Received: root_rank=-1. Expected: 0 to"),
        (ValueError, 100, "Received: root_rank=100. Expected: 0 to"),
        (TypeError, "first", "Received: root_rank='first'. Expected: a rank"),
        (TypeError, 0.5, "Received: root_rank=0.5. Expected: a rank"),
    ],
)
def test_wrong_arguments(mode, kind, root, text):
    with pytest.raises(kind) as raised:
        run(mode, lambda: hvd.broadcast([1.0], root))
    assert text in str(raised.value)
