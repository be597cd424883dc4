"""Ranks that ask for different things: each gets an error that says so, and the job continues."""

import re

import numpy as np
import pytest
import tensorflow as tf
from modes import in_both_modes, run
from with_xla import needs_xla

import tfhvd as hvd

pytestmark = pytest.mark.ranks(2, 4)


def of_last(first, last):
    """The last rank's argument differs from the others'."""
    return last if hvd.rank() == hvd.size() - 1 else first


def shape():
    return hvd.allreduce(tf.zeros([2, of_last(3, 4)]), name="it")


def dtype():
    return hvd.allreduce(tf.zeros([2], of_last(tf.float32, tf.int32)), name="it")


def op():
    return hvd.allreduce(tf.zeros([2]), op=of_last(hvd.Sum, hvd.Max), name="it")


def factor():
    return hvd.allreduce(tf.zeros([2]), postscale_factor=of_last(1.0, 0.5), name="it")


def root():
    return hvd.broadcast(tf.zeros([2]), root_rank=of_last(0, 1), name="it")


def shape_of_broadcast():
    return hvd.broadcast(tf.zeros([of_last(2, 1)]), 0, name="it")


def later_dimension():
    return hvd.allgather(tf.zeros([1, of_last(2, 5)]), name="it")


def number_of_dimensions():
    return hvd.allgather(tf.zeros([1] * of_last(2, 3)), name="it")


def collective():
    x = tf.zeros([2])
    return of_last(lambda: hvd.allreduce(x, name="it"), lambda: hvd.allgather(x, name="it"))()


def group_size():
    return hvd.grouped_allreduce([tf.zeros([2])] * of_last(2, 3), name="it")


def one_of_a_group():
    return hvd.grouped_allreduce([tf.zeros([2]), tf.zeros([of_last(1, 2)])], name="it")


def group_and_single():
    x = tf.zeros([2])
    single, group = (lambda: hvd.allreduce(x, name="it")), hvd.grouped_allreduce
    return of_last(single, lambda: group([x, x], name="it"))()


# The call, what the error says of the first rank, of the last one, and what it advises.
CASES = [
    (shape, "float32[2, 3]", "float32[2, 4]", "one shape on every rank"),
    (dtype, "float32[2]", "int32[2]", "Cast"),
    (op, "Sum", "Max", "the same op"),
    (factor, "Average", "postscale_factor=0.5", "postscale_factor"),
    (root, "0", "1", "root_rank"),
    (shape_of_broadcast, "[2]", "[1]", "shape"),
    (later_dimension, "[1, 2]", "[1, 5]", "may differ in the first one"),
    (number_of_dimensions, "[1, 1]", "[1, 1, 1]", "allgather"),
    (collective, "allreduce", "allgather", "name="),
    (group_size, "2", "3", "same tensors"),
    (one_of_a_group, "[1]", "[2]", "shape"),
    (group_and_single, "1", "2", "same tensors"),
]


@in_both_modes
@pytest.mark.parametrize("call, first, last, advice", CASES, ids=[c[0].__name__ for c in CASES])
def test_an_error_on_every_rank_and_the_job_goes_on(mode, call, first, last, advice):
    end = hvd.size() - 1
    for _ in range(3):
        with pytest.raises(tf.errors.InvalidArgumentError) as raised:
            run(mode, call)
        text = raised.value.message
        assert "'it'" in text
        ranks = "rank 0: " if end == 1 else f"ranks {list(range(end))}: "
        assert re.search(re.escape(ranks) + r"[^;]*" + re.escape(first), text), text
        assert re.search(re.escape(f"rank {end}: ") + r"[^;]*" + re.escape(last), text), text
        assert advice in text, text
        assert hvd.allreduce(1.0, op=hvd.Sum, name="it") == float(hvd.size())


def test_the_same_name_works_again_with_another_shape():
    @tf.function(reduce_retracing=True)
    def f(x):
        return hvd.allreduce(x, op=hvd.Sum, name="again")

    for step in range(6):
        if step % 2:
            with pytest.raises(tf.errors.InvalidArgumentError, match="'again'"):
                f(tf.ones([of_last(step, step + 1)]))
        else:
            np.testing.assert_array_equal(f(tf.ones([step])), np.ones(step) * hvd.size())


def test_one_of_many_is_wrong_and_the_step_is_tried_again():
    @tf.function
    def f(x, odd):
        good = [hvd.allreduce(x * i, op=hvd.Sum, name=f"step.{i}") for i in range(20)]
        return [*good, hvd.allreduce(odd, op=hvd.Sum, name="step.odd")]

    for step in range(4):
        width = of_last(2, 3) if step % 2 == 0 else 2
        if step % 2 == 0:
            with pytest.raises(tf.errors.InvalidArgumentError, match=r"'step.odd'"):
                f(tf.ones([3]), tf.ones([width]))
            hvd.barrier()
        else:
            *good, odd = f(tf.ones([3]), tf.ones([width]))
            np.testing.assert_array_equal(odd, np.ones(2) * hvd.size())
            for i, x in enumerate(good):
                np.testing.assert_array_equal(x, np.ones(3) * i * hvd.size())


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=needs_xla)])
def test_the_next_step_never_meets_what_is_left_of_the_one_that_failed(compiled):
    """No barrier between them, for the error has come on every rank."""
    sizes = (3, 40, 70_000, 300_000)

    def step_with(odd):
        @tf.function(jit_compile=compiled)
        def step(value):
            tensors = [tf.fill([size], value) for size in sizes]
            if odd is not None and hvd.rank() == 1:
                tensors[odd] = tensors[odd][:-1]
            summed = [
                hvd.allreduce(x, op=hvd.Sum, name=f"gradient.{compiled}.{number}")
                for number, x in enumerate(tensors)
            ]
            return [each[0] for each in summed]

        return step

    fits, differs = step_with(None), [step_with(odd) for odd in (0, 1, 3)]
    source = np.random.default_rng(7)
    for number in range(200):
        value = tf.constant(float(number))
        if source.random() < 0.6:
            assert [float(x) for x in fits(value)] == [float(hvd.size() * number)] * len(sizes)
        else:
            with pytest.raises(tf.errors.InvalidArgumentError, match="Mismatched shapes"):
                differs[source.integers(len(differs))](value)
