"""hvd.grouped_allreduce: several tensors as one unit."""

import numpy as np
import pytest
import tensorflow as tf
from modes import FLOATS, NUMBERS, in_both_modes, mine, numbers, of_ranks, run
from variants import first_of

import tfhvd as hvd

pytestmark = pytest.mark.ranks(1, 2)


@in_both_modes
@pytest.mark.ranks(1, 2, 4)
def test_types_and_shapes_may_be_mixed(mode):
    shapes = [(), (0, 2), (3,), (2, 2), (5,), (1,), (4,), (6, 1), (2,), (3, 1), (0,), (5, 2)]
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
@pytest.mark.parametrize("op", first_of([hvd.Average, hvd.Sum, hvd.Min, hvd.Product]), ids=str)
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
    with pytest.raises(ValueError, match=r"needs at least one tensor"):
        run(mode, lambda: hvd.grouped_allreduce([]))
    slices = tf.IndexedSlices([1.0], [0], [1])
    for op in (hvd.Min, hvd.Max, hvd.Product, hvd.Adasum):
        with pytest.raises(NotImplementedError, match=f"added only. Received: op={op}"):
            run(mode, lambda op=op: hvd.grouped_allreduce([tf.constant(1.0), slices], op=op))
    for call in (hvd.grouped_allgather, hvd.grouped_reducescatter):
        with pytest.raises(NotImplementedError, match=rf"{call.__name__} is not .* IndexedSlices"):
            run(mode, lambda call=call: call([tf.constant([1.0]), slices]))
    with pytest.raises(TypeError, match=r"can be added only. Received: a complex64 tensor, op=Max"):
        run(mode, lambda: hvd.grouped_allreduce([1.0, tf.constant(1j, tf.complex64)], op=hvd.Max))


@in_both_modes
@pytest.mark.ranks(1, 2, 4)
@pytest.mark.parametrize("with_dense", [False, True], ids=["alone", "with dense ones"])
def test_slices(mode, with_dense):
    n, rows = hvd.size(), hvd.rank() + 1

    def f(x, values, indices):
        slices = [
            tf.IndexedSlices(values, indices, tf.constant([10, 2])),
            tf.IndexedSlices(2 * values[:1], indices[:1], tf.constant([3, 2])),
        ]
        group = [x, slices[0], 2 * x, slices[1]] if with_dense else slices
        summed = hvd.grouped_allreduce(group, op=hvd.Sum, prescale_factor=2.0, postscale_factor=3.0)
        return summed, hvd.grouped_allreduce(group, compression=hvd.Compression.fp16)

    x = tf.constant([1.0, 2.0])
    results = run(mode, f, x, tf.ones([rows, 2]), tf.range(rows, dtype=tf.int64))
    first = sum(np.arange(10)[:, np.newaxis] <= rank for rank in range(n)) * np.ones((10, 2))
    second = np.eye(3, 1) * [[2.0 * n, 2.0 * n]]
    for group, factor in zip(results, (6.0, 1.0 / n)):
        assert isinstance(group, list)
        if with_dense:
            np.testing.assert_allclose(group.pop(0), np.array([1, 2]) * n * factor)
            np.testing.assert_allclose(group.pop(1), np.array([2, 4]) * n * factor)
        for slices, expected in zip(group, (first, second)):
            assert isinstance(slices, tf.IndexedSlices)
            np.testing.assert_allclose(tf.convert_to_tensor(slices), expected * factor, rtol=1e-3)
