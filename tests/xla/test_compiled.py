"""Collectives in functions with jit_compile=True."""

import random

import numpy as np
import pytest
import tensorflow as tf

import tfhvd as hvd

pytestmark = pytest.mark.ranks(1, 2)

NUMBERS = (
    *(tf.uint8, tf.int8, tf.int32, tf.int64),
    *(tf.float16, tf.bfloat16, tf.float32, tf.float64),
)


def compiled(function):
    return tf.function(function, jit_compile=True)


def of_rank(dtype, rank=None):
    return tf.cast(tf.range(1, 5) * ((hvd.rank() if rank is None else rank) + 1), dtype)


def same_as_uncompiled(function, *arguments):
    expected = tf.nest.flatten(tf.function(function)(*arguments))
    for _ in range(2):
        actual = tf.nest.flatten(compiled(function)(*arguments))
        for a, e in zip(actual, expected):
            assert a.dtype == e.dtype
            np.testing.assert_array_equal(tf.cast(a, tf.float64), tf.cast(e, tf.float64))


@pytest.mark.parametrize("dtype", NUMBERS, ids=lambda d: d.name)
def test_every_type_and_reduction(dtype):
    def f(x):
        ops = (hvd.Average, hvd.Sum, hvd.Min, hvd.Max, hvd.Product)
        return [hvd.allreduce(x, op=op, name=f"types.{op}") for op in ops]

    same_as_uncompiled(f, of_rank(dtype))


def test_truth_values():
    def f(x):
        return hvd.allreduce(x, op=hvd.Min, name="all"), hvd.allreduce(x, op=hvd.Max, name="any")

    same_as_uncompiled(f, tf.constant([True, hvd.rank() == 0, False]))


def test_every_collective():
    def f(x, rows):
        return [
            hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0, name="scaled"),
            hvd.grouped_allreduce([x, x * 2], name="group"),
            hvd.allgather(x, name="gathered"),
            hvd.grouped_allgather([x, rows], name="both.gathered"),
            hvd.broadcast(x, hvd.size() - 1, name="of.last"),
            hvd.reducescatter(rows, op=hvd.Sum, name="scattered"),
            hvd.alltoall(rows, name="exchanged")[0],
        ]

    rows = tf.reshape(tf.range(12.0), [4, 3]) + hvd.rank()
    same_as_uncompiled(f, of_rank(tf.float32), rows)


def test_a_barrier():
    @compiled
    def f(x):
        y = hvd.allreduce(x, op=hvd.Sum, name="before")
        hvd.barrier()
        return y

    assert f(tf.constant(1.0)) == hvd.size()


def test_gradients():
    def f(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = hvd.allreduce(x * x, op=hvd.Sum, name="sum") * (hvd.rank() + 1.0)
            y += hvd.allreduce(x * 3, op=hvd.Max, name="max")
            y += hvd.broadcast(x, 0, name="root")
            y += hvd.allgather(x, name="rows")[:4] * (hvd.rank() + 2.0)
        return tape.gradient(y, x)

    same_as_uncompiled(f, of_rank(tf.float32))


def test_other_orders_on_each_rank_with_one_thread_to_run_them():
    # A rank that waited for one before it had begun all others would wait forever.
    count = 50

    @compiled
    def f(x):
        results = [None] * count
        for i in random.Random(hvd.rank()).sample(range(count), count):
            results[i] = hvd.allreduce(tf.sin(x * i), op=hvd.Sum, name=f"other.{i}")
        return results

    for _ in range(3):
        for i, result in enumerate(f(tf.ones([100]))):
            np.testing.assert_allclose(result, np.sin(np.full(100, i)) * hvd.size(), atol=1e-5)


def test_other_orders_where_some_depend_on_others_and_on_variables():
    state = tf.Variable(0.0)

    @compiled
    def f(x):
        state.assign(hvd.allreduce(x, op=hvd.Sum, name="to.variable"))
        names = ["p", "q"] if hvd.rank() == 0 else ["q", "p"]
        first = {n: hvd.allreduce(x, op=hvd.Sum, name=n) for n in names}
        second = {n: hvd.allreduce(first[n] + state, op=hvd.Sum, name=f"{n}2") for n in names[::-1]}
        return second["p"], second["q"]

    n = hvd.size()
    assert [float(y) for y in f(tf.constant(1.0))] == [2.0 * n * n] * 2


@pytest.mark.ranks(2)
def test_ranks_may_differ_in_what_they_compile():
    def f(x):
        return [hvd.allreduce(x * i, op=hvd.Sum, name=f"mixed.{i}") for i in range(5)]

    function = tf.function(f, jit_compile=hvd.rank() == 0)
    for i, y in enumerate(function(tf.constant(1.0))):
        assert y == 2.0 * i


def test_loops_and_branches():
    @compiled
    def f(x):
        for _ in tf.range(4):
            x = hvd.allreduce(x + 1, name="in.loop")
        if tf.reduce_sum(x) > 3:
            x = hvd.allreduce(x * 2, op=hvd.Max, name="in.branch")
        return x

    assert f(tf.constant(0.0)) == 8.0


def test_a_function_that_was_traced_uncompiled():
    @tf.function
    def inner(x):
        return hvd.allreduce(x, op=hvd.Sum, name="inner")

    assert inner(tf.constant(1.0)) == hvd.size()
    assert compiled(lambda x: inner(x) * 2)(tf.constant(1.0)) == 2 * hvd.size()


def test_gradient_tape():
    weights = [tf.Variable(tf.ones([3, 3])) for _ in range(4)]
    table = tf.Variable(tf.ones([5, 3]))

    def f(x):
        with hvd.DistributedGradientTape(tf.GradientTape(), op=hvd.Sum) as tape:
            y = x + tf.gather(table, [1, 3, 1])
            for w in weights:
                y = y @ w
        return [tf.convert_to_tensor(g) for g in tape.gradient(y, [*weights, table])]

    same_as_uncompiled(f, tf.ones([3, 3]) * (hvd.rank() + 1))


@pytest.mark.ranks(2)
def test_a_mismatch_is_an_error_on_every_rank_and_the_job_goes_on():
    @compiled
    def f(good, odd):
        kept = hvd.allreduce(good, op=hvd.Sum, name="good")
        return kept, hvd.allreduce(odd, op=hvd.Sum, name="odd")

    for step in range(3):
        with pytest.raises(tf.errors.OpError, match=r"'odd'.*rank 0.*\[1\].*rank 1.*\[2\]"):
            f(tf.ones([3]), tf.ones([1 + hvd.rank()]))
        hvd.barrier()
        good, odd = f(tf.ones([3]), tf.ones([2]) * step)
        np.testing.assert_array_equal(good, [2.0] * 3)
        np.testing.assert_array_equal(odd, [2.0 * step] * 2)


@pytest.mark.ranks(2)
def test_uneven_rows_are_an_error_that_says_why():
    @compiled
    def f(x):
        return hvd.allgather(x, name="uneven")

    with pytest.raises(tf.errors.InvalidArgumentError, match="XLA fixes shapes beforehand"):
        f(tf.ones([1 + hvd.rank(), 2]))
    assert hvd.allreduce(1.0, op=hvd.Sum) == 2.0
