"""hvd.grouped_allreduce: several tensors as one unit."""

import numpy as np
import pytest
import tensorflow as tf
from modes import FLOATS, NUMBERS, in_both_modes, mine, numbers, of_ranks, run

import tfhvd as hvd

pytestmark = pytest.mark.ranks(1, 2)


@in_both_modes
@pytest.mark.ranks(1, 2, 4)
def test_types_and_shapes_may_be_mixed(mode):
    shapes = [(), (0, 2), (3,), (2, 2), (5,), (1,), (4,), (6, 1)]
    values = [of_ranks(s, t, seed) for seed, (s, t) in enumerate(zip(shapes, NUMBERS))]
    tensors = [mine(v, t) for v, t in zip(values, NUMBERS)]
    results = run(mode, lambda *x: hvd.grouped_allreduce(x, op=hvd.Max), *tensors)
    assert isinstance(results, list)
    for result, value, dtype in zip(results, values, NUMBERS):
        assert result.dtype == dtype
        np.testing.assert_array_equal(numbers(result), np.max(value, axis=0))


@in_both_modes
def test_arguments_hold_for_each_tensor(mode):
    def f(x, y):
        return hvd.grouped_allreduce(
            [x, y],
            op=hvd.Sum,
            prescale_factor=0.5,
            postscale_factor=4.0,
            compression=hvd.Compression.bf16,
        )

    x, y = run(mode, f, tf.constant([1.0]), tf.constant([3.0], tf.float64))
    assert (x.dtype, y.dtype) == (tf.float32, tf.float64)
    assert (x, y) == (2.0 * hvd.size(), 6.0 * hvd.size())


@in_both_modes
def test_one_tensor(mode):
    [result] = run(mode, lambda: hvd.grouped_allreduce([tf.constant([2.0])], op=hvd.Sum))
    assert result == 2.0 * hvd.size()


@in_both_modes
def test_average(mode):
    def f(x):
        return hvd.grouped_allreduce([x, 2 * x]), hvd.grouped_allreduce([x, x], average=False)

    (x, y), (z, _) = run(mode, f, tf.constant([1.0]) * (hvd.rank() + 1))
    mean = (hvd.size() + 1) / 2
    assert (x, y, z) == (mean, 2 * mean, mean * hvd.size())


@in_both_modes
@pytest.mark.ranks(1, 2, 4)
@pytest.mark.parametrize("op", [hvd.Sum, hvd.Average, hvd.Min, hvd.Product], ids=str)
def test_gradient_is_that_of_each_alone(mode, op):
    for dtype in FLOATS:
        x = tf.cast([1 + hvd.rank(), 2], dtype)
        y = tf.cast([[3 - hvd.rank()]], dtype)

        def f(x, y, reduce):
            with tf.GradientTape() as tape:
                tape.watch([x, y])
                a, b = reduce(x, y)
                loss = tf.reduce_sum(a) * 2 + tf.reduce_sum(b * b)
            return tape.gradient(loss, [x, y])

        def one_by_one(x, y):
            return hvd.allreduce(x, op=op), hvd.allreduce(y, op=op)

        together = run(mode, lambda x, y: f(x, y, lambda *z: hvd.grouped_allreduce(z, op=op)), x, y)
        alone = run(mode, lambda x, y: f(x, y, one_by_one), x, y)
        for a, b in zip(together, alone):
            np.testing.assert_array_equal(numbers(a), numbers(b))


@in_both_modes
def test_gradient_where_one_result_is_not_used(mode):
    def f(x, y):
        with tf.GradientTape() as tape:
            tape.watch([x, y])
            a, _ = hvd.grouped_allreduce([x, y], op=hvd.Sum)
            loss = tf.reduce_sum(a)
        return tape.gradient(loss, [x, y])

    x, y = run(mode, f, tf.constant([1.0]), tf.constant([1.0, 2.0]))
    np.testing.assert_array_equal(x, [hvd.size()])
    np.testing.assert_array_equal(y, [0, 0])


@in_both_modes
def test_wrong_arguments(mode):
    with pytest.raises(ValueError, match=r"Received: no tensors. Expected: at least one"):
        run(mode, lambda: hvd.grouped_allreduce([]))
    slices = tf.IndexedSlices([1.0], [0], [1])
    with pytest.raises(TypeError, match="Received: a IndexedSlices"):
        run(mode, lambda: hvd.grouped_allreduce([tf.constant(1.0), slices]))
    with pytest.raises(TypeError, match="Received: complex64"):
        run(mode, lambda: hvd.grouped_allreduce([1.0, tf.constant(1j, tf.complex64)]))
