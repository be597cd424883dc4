"""hvd.reducescatter and hvd.grouped_reducescatter: a reduction's rows, some on each rank."""

import numpy as np
import pytest
import tensorflow as tf
from modes import FLOATS, NUMBERS, in_both_modes, mine, numbers, of_ranks, run
from variants import first_of

import tfhvd as hvd

pytestmark = pytest.mark.ranks(1, 2)


def my_rows(total: np.ndarray) -> np.ndarray:
    """The part of this rank: the first ranks have one row more where they do not come out even."""
    return np.array_split(total, hvd.size())[hvd.rank()]


@in_both_modes
@pytest.mark.ranks(1, 2, 4)
def test_every_type_and_rows_that_do_not_come_out_even(mode):
    for dtype in NUMBERS:
        for rows in (7, 1, 8, 0):
            values = of_ranks((rows, 3), dtype)
            result = run(mode, lambda x: hvd.reducescatter(x, op=hvd.Sum), mine(values, dtype))
            assert result.dtype == dtype
            expected = my_rows(np.sum(values, axis=0))
            np.testing.assert_array_equal(numbers(result), expected)


@in_both_modes
@pytest.mark.ranks(1, 2, 4)
def test_every_operation(mode):
    values = of_ranks((5, 2), tf.float32)
    numpy_ops = {hvd.Average: np.mean, hvd.Min: np.min, hvd.Max: np.max, hvd.Product: np.prod}
    for op, by_hand in numpy_ops.items():
        result = run(mode, lambda x, op=op: hvd.reducescatter(x, op=op), mine(values, tf.float32))
        np.testing.assert_array_equal(result, my_rows(by_hand(values, axis=0)))
    truth = tf.constant([True, False, hvd.rank() == 0])
    every = run(mode, lambda x: hvd.reducescatter(x, op=hvd.Min), truth)
    np.testing.assert_array_equal(every, my_rows(np.array([True, False, hvd.size() == 1])))


@in_both_modes
def test_scales_and_compression(mode):
    def f(x):
        return hvd.reducescatter(
            x, compression=hvd.Compression.fp16, prescale_factor=0.5, postscale_factor=4.0
        )

    result = run(mode, f, tf.ones([3, 2]))
    assert result.dtype == tf.float32
    np.testing.assert_array_equal(result, my_rows(np.full([3, 2], 2.0)))


@in_both_modes
@pytest.mark.ranks(1, 2, 4)
def test_a_group_of_mixed_types_and_shapes(mode):
    shapes = [(3,), (0, 2), (1, 2), (70001,), (4, 2, 2), (2,), (9, 1), (3, 0)]
    shapes += [(5,), (2, 3), (1,), (7, 1)]
    values = [of_ranks(s, t, seed) for seed, (s, t) in enumerate(zip(shapes, NUMBERS))]
    tensors = [mine(v, t) for v, t in zip(values, NUMBERS)]
    # Twice the same ones: those of one type travel together.
    both = run(mode, lambda *x: hvd.grouped_reducescatter([*x, *x], op=hvd.Max), *tensors)
    for results in (both[: len(shapes)], both[len(shapes) :]):
        for result, value, dtype in zip(results, values, NUMBERS):
            assert result.dtype == dtype
            np.testing.assert_array_equal(numbers(result), my_rows(np.max(value, axis=0)))


@in_both_modes
@pytest.mark.ranks(1, 2, 4)
@pytest.mark.parametrize("op", first_of([hvd.Average, hvd.Sum, hvd.Min, hvd.Product]), ids=str)
def test_gradient_is_that_of_the_rows_of_an_allreduce(mode, op):
    def f(x, y, weight, reduce):
        with tf.GradientTape() as tape:
            tape.watch([x, y])
            a, b = reduce(x, y)
            loss = tf.reduce_sum(a * weight) + tf.reduce_sum(b * b)
        return tape.gradient(loss, [x, y])

    def scattered(x, y):
        return hvd.grouped_reducescatter([x, y], op=op, prescale_factor=0.5)

    def cut(x, y):
        reduced = hvd.grouped_allreduce([x, y], op=op, prescale_factor=0.5)
        return [tf.gather(r, my_rows(np.arange(len(r)))) for r in reduced]

    for dtype in FLOATS:
        x = tf.cast(tf.range(5) - 2 + hvd.rank(), dtype)
        y = tf.cast([[3 - hvd.rank()], [1]], dtype)
        weight = tf.cast(my_rows(np.arange(5)), dtype)
        together = run(mode, lambda *a: f(*a, scattered), x, y, weight)
        alone = run(mode, lambda *a: f(*a, cut), x, y, weight)
        for a, b in zip(together, alone):
            assert a.dtype == dtype
            np.testing.assert_array_equal(numbers(a), numbers(b))


@pytest.mark.ranks(1, 2, 4)
def test_gradient_of_one_tensor():
    x = tf.Variable([[1.0], [2.0], [3.0]])
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(hvd.reducescatter(x, op=hvd.Sum)) * (hvd.rank() + 1)
    rows = [len(part) for part in np.array_split(range(3), hvd.size())]
    expected = np.repeat(np.arange(hvd.size()) + 1, rows)
    np.testing.assert_array_equal(tape.gradient(loss, x)[:, 0], expected)


def test_the_shape_is_known_in_a_graph_but_for_the_first_dimension():
    f = tf.function(hvd.reducescatter).get_concrete_function(tf.TensorSpec([4, 3]))
    assert f.output_shapes.as_list() == [None, 3]


@in_both_modes
def test_wrong_arguments(mode):
    with pytest.raises(ValueError, match=r"hvd.reducescatter .* Received: a scalar"):
        run(mode, lambda: hvd.reducescatter(3.0))
    with pytest.raises(TypeError, match="Received: a bool tensor, op=Sum"):
        run(mode, lambda: hvd.reducescatter([True], op=hvd.Sum))
    with pytest.raises(ValueError, match=r"Received: op=77. Expected: hvd.Average"):
        run(mode, lambda: hvd.reducescatter([1.0], op=77))
    with pytest.raises(ValueError, match=r"needs at least one tensor"):
        run(mode, lambda: hvd.grouped_reducescatter([]))
    with pytest.raises(
        TypeError, match=r"a list or tuple of tensors, .* of type EagerTensor; .* pass \[tensor\]"
    ):
        hvd.grouped_reducescatter(tf.ones([2, 2]))


@pytest.mark.ranks(2)
def test_a_group_fails_as_one():
    rows = 3 + hvd.rank()
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"Mismatched shapes .* tensor 1 of the"
    ):
        hvd.grouped_reducescatter([tf.ones([2]), tf.ones([rows])], name="group")
    [first, second] = hvd.grouped_reducescatter([tf.ones([2]), tf.ones([2])], name="group")
    assert (first, second) == (1.0, 1.0)
