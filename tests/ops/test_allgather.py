"""hvd.allgather: every rank's tensor in one."""

import numpy as np
import pytest
import tensorflow as tf
from modes import FLOATS, NUMBERS, in_both_modes, numbers, run

import tfhvd as hvd

pytestmark = pytest.mark.ranks(1, 2)


@in_both_modes
@pytest.mark.ranks(1, 2, 4)
def test_every_type(mode):
    for dtype in (*NUMBERS, tf.bool):
        x = tf.cast(tf.fill([2, 3], hvd.rank() + 1), dtype)
        result = run(mode, hvd.allgather, x)
        expected = np.repeat(np.arange(hvd.size()) + 1, 2)[:, np.newaxis] * np.ones((1, 3))
        assert result.dtype == dtype
        assert result.shape == (2 * hvd.size(), 3)
        np.testing.assert_array_equal(numbers(result), expected.astype(dtype.as_numpy_dtype))


@in_both_modes
@pytest.mark.ranks(1, 2, 4)
def test_first_dimensions_may_differ(mode):
    rows = [0 if rank == 1 else rank + 2 for rank in range(hvd.size())]
    x = tf.fill([rows[hvd.rank()], 2], float(hvd.rank()))
    expected = np.repeat(np.arange(hvd.size()), rows)[:, np.newaxis] * np.ones((1, 2))
    np.testing.assert_array_equal(run(mode, hvd.allgather, x), expected)


@in_both_modes
@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (1,), (70001, 3)], ids=str)
def test_every_size(mode, shape):
    x = tf.fill(shape, float(hvd.rank()))
    result = run(mode, hvd.allgather, x)
    expected = np.concatenate([np.full(shape, float(rank)) for rank in range(hvd.size())])
    np.testing.assert_array_equal(result, expected)


def test_the_length_may_change_from_step_to_step():
    @tf.function(reduce_retracing=True)
    def f(x):
        return hvd.allgather(x, name="changing")

    for step in range(5):
        rows = [(step * (rank + 1)) % 4 for rank in range(hvd.size())]
        result = f(tf.fill([rows[hvd.rank()]], hvd.rank()))
        np.testing.assert_array_equal(result, np.repeat(np.arange(hvd.size()), rows))


@in_both_modes
def test_gradient(mode):
    for dtype in FLOATS:
        mine = tf.ones([hvd.rank() + 1, 2], dtype)
        rows = sum(range(1, hvd.size() + 1))
        weight = np.arange(rows * 2).reshape(rows, 2) % 5

        def f(x, weight):
            with tf.GradientTape() as tape:
                tape.watch(x)
                loss = tf.reduce_sum(hvd.allgather(x) * weight)
            return tape.gradient(loss, x)

        gradient = run(mode, f, mine, tf.cast(weight, dtype))
        begin = sum(range(1, hvd.rank() + 1))
        expected = weight[begin : begin + hvd.rank() + 1] * hvd.size()
        assert gradient.dtype == dtype
        np.testing.assert_array_equal(numbers(gradient), expected)


def test_the_shape_is_known_in_a_graph_but_for_the_first_dimension():
    f = tf.function(hvd.allgather).get_concrete_function(tf.TensorSpec([2, 3]))
    assert f.output_shapes.as_list() == [None, 3]


@in_both_modes
def test_wrong_arguments(mode):
    with pytest.raises(ValueError, match=r"Received: a scalar. Expected: at least one dimension"):
        run(mode, lambda: hvd.allgather(3.0))
    with pytest.raises(TypeError, match="Received: string"):
        run(mode, lambda: hvd.allgather(["a"]))


def test_a_scalar_of_unknown_rank_fails_on_every_rank():
    @tf.function(input_signature=[tf.TensorSpec(None)])
    def f(x):
        return hvd.allgather(x, name="unknown")

    with pytest.raises(tf.errors.InvalidArgumentError, match=r"'unknown' got a scalar"):
        f(tf.constant(1.0))
    assert len(f(tf.constant([1.0]))) == hvd.size()
