"""hvd.alltoall: rows from every rank to every rank."""

import numpy as np
import pytest
import tensorflow as tf
from modes import COMPLEX, FLOATS, NUMBERS, in_both_modes, numbers, run

import tfhvd as hvd

pytestmark = pytest.mark.ranks(1, 2)


def splits_of(rank: int) -> list[int]:
    """How many rows that rank sends to each: some of them none."""
    return [(rank + 2 * to) % 4 for to in range(hvd.size())]


def received() -> list[int]:
    return [splits_of(rank)[hvd.rank()] for rank in range(hvd.size())]


@in_both_modes
@pytest.mark.ranks(1, 2, 4)
def test_every_type_with_uneven_splits(mode):
    for dtype in (*NUMBERS, *COMPLEX, tf.bool):
        splits = splits_of(hvd.rank())
        x = tf.cast(tf.fill([sum(splits), 3], hvd.rank()), dtype)
        output, counts = run(mode, lambda x, s=splits: hvd.alltoall(x, splits=s), x)
        assert (output.dtype, counts.dtype) == (dtype, tf.int32)
        np.testing.assert_array_equal(counts, received())
        expected = np.repeat(np.arange(hvd.size()), received())[:, np.newaxis] * np.ones((1, 3))
        np.testing.assert_array_equal(numbers(output), expected.astype(dtype.as_numpy_dtype))


@in_both_modes
@pytest.mark.ranks(1, 2, 4)
def test_equal_parts(mode):
    x = tf.range(2 * hvd.size()) + 100 * hvd.rank()
    output = run(mode, hvd.alltoall, x)
    first = 2 * hvd.rank()
    expected = [100 * r + i for r in range(hvd.size()) for i in (first, first + 1)]
    np.testing.assert_array_equal(output, expected)
    assert len(run(mode, hvd.alltoall, tf.zeros([0, 3]))) == 0


@in_both_modes
def test_a_large_one(mode):
    x = tf.range(50001 * hvd.size()) * (hvd.rank() + 1)
    output = run(mode, hvd.alltoall, x)
    block = np.arange(50001) + 50001 * hvd.rank()
    np.testing.assert_array_equal(
        output, np.concatenate([block * (r + 1) for r in range(hvd.size())])
    )


def test_splits_may_change_from_step_to_step():
    @tf.function(reduce_retracing=True)
    def f(x, splits):
        return hvd.alltoall(x, splits, name="changing")

    for step in range(6):
        splits = [(step * (hvd.rank() + 1) + to) % 3 for to in range(hvd.size())]
        output, counts = f(tf.fill([sum(splits)], hvd.rank()), tf.constant(splits, tf.int64))
        expected = [(step * (r + 1) + hvd.rank()) % 3 for r in range(hvd.size())]
        np.testing.assert_array_equal(counts, expected)
        np.testing.assert_array_equal(output, np.repeat(np.arange(hvd.size()), expected))


@in_both_modes
@pytest.mark.ranks(1, 2, 4)
def test_gradient(mode):
    for dtype in FLOATS:
        splits = splits_of(hvd.rank())

        def f(x, splits=splits):
            with tf.GradientTape() as tape:
                tape.watch(x)
                output, _ = hvd.alltoall(x, splits)
                loss = tf.reduce_sum(output) * (hvd.rank() + 1)
            return tape.gradient(loss, x)

        gradient = run(mode, f, tf.ones([sum(splits), 2], dtype))
        assert gradient.dtype == dtype
        expected = np.repeat(np.arange(hvd.size()) + 1, splits)[:, np.newaxis] * np.ones((1, 2))
        np.testing.assert_array_equal(numbers(gradient), expected)


@in_both_modes
@pytest.mark.ranks(1, 2, 4)
def test_gradient_of_equal_parts(mode):
    def f(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(hvd.alltoall(x)) * (hvd.rank() + 1)
        return tape.gradient(loss, x)

    np.testing.assert_array_equal(run(mode, f, tf.ones([hvd.size()])), np.arange(hvd.size()) + 1)


def test_shapes_in_a_graph():
    f = tf.function(hvd.alltoall).get_concrete_function(tf.TensorSpec([4, 3]))
    assert f.output_shapes.as_list() == [None, 3]


@in_both_modes
def test_wrong_arguments(mode):
    size = hvd.size()
    with pytest.raises(ValueError, match=r"hvd.alltoall .* Received: a scalar"):
        run(mode, lambda: hvd.alltoall(3.0))
    with pytest.raises(TypeError, match="Received: splits of type float32"):
        run(mode, lambda: hvd.alltoall([1.0], splits=[1.0] * size))
    with pytest.raises(
        ValueError, match=rf"Received: splits of shape .* Expected: shape \({size},\)"
    ):
        run(mode, lambda: hvd.alltoall([1.0], splits=[1] * (size + 1)))
    error = tf.errors.InvalidArgumentError if mode == "eager" else ValueError
    for splits, rows in ([3] + [0] * (size - 1), 5), ([-1] * size, 0):
        with pytest.raises(error, match=r"Received: .* Expected: "):
            run(mode, lambda s=splits, r=rows: hvd.alltoall(tf.ones([r]), splits=s))


@pytest.mark.ranks(2, 4)
def test_of_one_ranks_splits_all_hear_in_an_eager_call():
    last = hvd.size() - 1
    splits = [5 if hvd.rank() == last else 1] * hvd.size()
    for name in (None, "mine"):
        with pytest.raises(
            tf.errors.InvalidArgumentError, match=rf"on rank {last} got .* Received: \[5, 5"
        ):
            hvd.alltoall(tf.ones([hvd.size()]), splits=splits, name=name)
    assert len(hvd.alltoall(tf.ones([hvd.size()]), name="mine")) == hvd.size()


@pytest.mark.ranks(1, 2, 4)
def test_splits_known_only_when_it_runs():
    @tf.function(input_signature=[tf.TensorSpec([None]), tf.TensorSpec([None], tf.int32)])
    def f(x, splits):
        return hvd.alltoall(x, splits, name="late")

    right, last = [1] * hvd.size(), hvd.rank() == hvd.size() - 1
    for wrong in ([7] * hvd.size(), [1], [-1, *right[1:]]):
        with pytest.raises(
            tf.errors.InvalidArgumentError, match=r"'late' on rank 0 .* Received: \["
        ):
            f(tf.ones([hvd.size() + 1]), wrong)
        # Of one rank's mistake all hear, and go on.
        with pytest.raises(
            tf.errors.InvalidArgumentError,
            match=rf"alltoall 'late' on rank {hvd.size() - 1} got .* Received: \[.* Expected: ",
        ):
            f(tf.ones([hvd.size()]), wrong if last and len(wrong) > 1 else right + [0] * last)
    if hvd.size() > 1:
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"Expected: a first dim"):
            hvd.alltoall(tf.ones([hvd.size() + 1 if last else hvd.size()]))
    output, _ = f(tf.ones([hvd.size()]), right)
    assert len(output) == hvd.size()
