"""Averages of 64-bit integers whose sum does not fit into 64 bits."""

import numpy as np
import pytest
import tensorflow as tf
from modes import in_all_modes, run

import tfhvd as hvd

pytestmark = pytest.mark.ranks(2)

in_both_types = pytest.mark.parametrize("dtype", [tf.int64, tf.uint64], ids=lambda t: t.name)


def values_of(rank, dtype):
    """Every pair of the smallest, the largest and some others, and random bits."""
    low, high = dtype.min, dtype.max
    few = [low, high, low + 1, high - 1, 0, 1, 2**62, 2**32, 2**32 - 1, 3]
    if dtype == tf.int64:
        few += [-1, -2, -3, -(2**32), -(2**62)]
    pairs = [(a, b) for a in few for b in few]
    random = np.random.default_rng(5).integers(low, high, (100, 2), dtype.as_numpy_dtype)
    return [int(pair[rank % 2]) for pair in [*pairs, *random.tolist()]]


def averages(ranks, dtype):
    """Exactly, and cut off towards zero."""
    sums = [sum(column) for column in zip(*(values_of(rank, dtype) for rank in ranks))]
    return [abs(total) // len(ranks) * (1 if total >= 0 else -1) for total in sums]


@in_all_modes
@in_both_types
@pytest.mark.ranks(1, 2, 4)
def test_average(mode, dtype):
    x = tf.constant(values_of(hvd.rank(), dtype), dtype)
    result = run(mode, hvd.allreduce, x)
    assert result.dtype == dtype
    np.testing.assert_array_equal(result.numpy().tolist(), averages(range(hvd.size()), dtype))


@in_all_modes
def test_of_one_number(mode):
    result = run(mode, hvd.allreduce, tf.constant(2**62, tf.int64))
    assert int(result) == 2**62
    assert result.shape == []


@in_all_modes
@in_both_types
def test_in_a_group_with_other_types(mode, dtype):
    x = tf.reshape(tf.constant(values_of(hvd.rank(), dtype), dtype), [-1, 5])

    def f(x):
        return hvd.grouped_allreduce([tf.cast(hvd.rank(), tf.float32), x, x[:0]], name="group")

    mean, large, empty = run(mode, f, x)
    assert mean == 0.5
    assert large.shape == x.shape
    assert empty.shape == [0, 5]
    expected = averages(range(2), dtype)
    np.testing.assert_array_equal(large.numpy().ravel().tolist(), expected)


@in_all_modes
@in_both_types
def test_of_rows(mode, dtype):
    x = tf.reshape(tf.constant(values_of(hvd.rank(), dtype), dtype), [-1, 5])
    expected = np.array(averages(range(2), dtype), object).reshape(-1, 5)
    half = len(expected) - len(expected) // 2
    mine = expected[:half] if hvd.rank() == 0 else expected[half:]
    if mode == "compiled" and len(expected) % 2:
        x, mine = x[:-1], expected[: half - 1] if hvd.rank() == 0 else expected[half - 1 : -1]
    rows = run(mode, lambda x: hvd.reducescatter(x, op=hvd.Average), x)
    np.testing.assert_array_equal(rows.numpy().tolist(), mine.tolist())


def test_factors_act_before_and_after():
    x = tf.constant([2**61, -7], tf.int64)
    result = hvd.allreduce(x, prescale_factor=2.0, postscale_factor=0.5)
    assert result.numpy().tolist() == [2**61, -7]


def test_a_rank_that_has_joined_counts_as_in_averages_of_other_types():
    if hvd.rank() == 0:
        wide = hvd.allreduce(tf.constant([2**62, 9], tf.int64), name="wide")
        plain = hvd.allreduce(tf.constant([8, 9]), name="plain")
        assert wide.numpy().tolist() == [2**61, 4]
        assert plain.numpy().tolist() == [4, 4]
    hvd.join()


def test_another_type_on_one_rank_is_an_error():
    x = tf.constant([1, 2], tf.int64 if hvd.rank() == 0 else tf.float32)
    with pytest.raises(tf.errors.InvalidArgumentError, match="'numbers'"):
        hvd.allreduce(x, name="numbers")
