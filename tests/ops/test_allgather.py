"""hvd.allgather and hvd.grouped_allgather: every rank's tensors in one."""

import numpy as np
import pytest
import tensorflow as tf
from modes import COMPLEX, FLOATS, NUMBERS, in_both_modes, numbers, run

import tfhvd as hvd

pytestmark = pytest.mark.ranks(1, 2)


@in_both_modes
@pytest.mark.ranks(1, 2, 4)
def test_every_type(mode):
    for dtype in (*NUMBERS, *COMPLEX, tf.bool):
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
@pytest.mark.ranks(1, 2, 4)
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


@in_both_modes
@pytest.mark.ranks(1, 2, 4)
def test_sparse_tensors(mode):
    """Rank r has r rows of 5; the first of them, if any, has an entry, which is in its table."""
    n, me = hvd.size(), hvd.rank()
    entries = [[0, me]] if me else np.zeros([0, 2], np.int64)
    values = [10.0 * me] if me else []

    def f(indices, values, weights):
        with tf.GradientTape() as tape:
            tape.watch(values)
            own = tf.SparseTensor(indices, values, tf.constant([me, 5], tf.int64))
            gathered = hvd.allgather(own)
            loss = tf.reduce_sum(gathered.values * weights) * (me + 1)
        return gathered, tape.gradient(loss, values)

    weights = tf.range(1.0, n)
    gathered, gradient = run(
        mode, f, tf.constant(entries, tf.int64), tf.constant(values, tf.float32), weights
    )
    assert isinstance(gathered, tf.SparseTensor)
    expected = np.zeros([sum(range(n)), 5])
    for rank in range(1, n):
        expected[sum(range(rank)), rank] = 10.0 * rank
    np.testing.assert_array_equal(tf.sparse.to_dense(gathered), expected)
    total = sum(range(1, n + 1))
    np.testing.assert_array_equal(gradient, [me * total] if me else [])


@pytest.mark.ranks(2)
def test_sparse_tensors_whose_later_dimensions_differ_fail_on_every_rank():
    own = tf.SparseTensor([[0, 0]], [1.0], [1, 3 + hvd.rank()])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"may differ .* first dimension only"):
        hvd.allgather(own)
    flat = tf.SparseTensor([[0]], [1.0], [1]) if hvd.rank() else own
    with pytest.raises(tf.errors.InvalidArgumentError, match="Mismatched shapes"):
        hvd.allgather(flat)


@pytest.mark.ranks(2, 4)
def test_gradient_while_a_rank_below_has_joined():
    """Its rows are missing, and those of the others move up."""
    if hvd.rank() > 0:
        x = tf.fill([hvd.rank()], 1.0)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = hvd.allgather(x, name="one.joined")
            loss = tf.reduce_sum(y * tf.range(float(sum(range(hvd.size())))))
        begin = sum(range(hvd.rank()))
        expected = np.arange(begin, begin + hvd.rank()) * (hvd.size() - 1)
        np.testing.assert_array_equal(tape.gradient(loss, x), expected)
    hvd.join()


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


@in_both_modes
@pytest.mark.ranks(1, 2, 4)
def test_a_group_of_mixed_types_and_lengths(mode):
    rows = [[(rank + 2 * i) % 3 for rank in range(hvd.size())] for i in range(len(NUMBERS))]
    tensors = [
        tf.cast(tf.fill([rows[i][hvd.rank()], 2], hvd.rank() + i), dtype)
        for i, dtype in enumerate(NUMBERS)
    ]
    results = run(mode, lambda *x: hvd.grouped_allgather(x), *tensors)
    assert isinstance(results, list)
    for i, (result, dtype) in enumerate(zip(results, NUMBERS)):
        assert result.dtype == dtype
        expected = np.repeat(np.arange(hvd.size()) + i, rows[i])[:, np.newaxis] * np.ones((1, 2))
        np.testing.assert_array_equal(numbers(result), expected)


@in_both_modes
@pytest.mark.ranks(1, 2, 4)
def test_gradient_of_a_group(mode):
    def f(x, y):
        with tf.GradientTape() as tape:
            tape.watch([x, y])
            a, _ = hvd.grouped_allgather([x, y])
            loss = tf.reduce_sum(a * tf.range(tf.cast(len(a), tf.float32)))
        return tape.gradient(loss, [x, y])

    x, y = run(mode, f, tf.ones([hvd.rank() + 1]), tf.ones([2, 2]))
    begin = sum(range(1, hvd.rank() + 1))
    np.testing.assert_array_equal(x, np.arange(begin, begin + hvd.rank() + 1) * hvd.size())
    np.testing.assert_array_equal(y, np.zeros([2, 2]))


@pytest.mark.ranks(2)
def test_a_group_fails_as_one():
    width = 3 + hvd.rank()
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"Mismatched shapes .* tensor 1 of the"
    ):
        hvd.grouped_allgather([tf.ones([2]), tf.ones([1, width])], name="group")
    first, second = hvd.grouped_allgather([tf.ones([2]), tf.ones([1])], name="group")
    assert (len(first), len(second)) == (4, 2)


@in_both_modes
def test_wrong_groups(mode):
    with pytest.raises(ValueError, match=r"hvd.grouped_allgather .* Received: a scalar"):
        run(mode, lambda: hvd.grouped_allgather([tf.ones([1]), 3.0]))
    with pytest.raises(ValueError, match="needs at least one tensor"):
        run(mode, lambda: hvd.grouped_allgather([]))
