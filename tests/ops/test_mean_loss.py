"""Losses that look at all ranks' tensors: the average of the ranks' gradients is one rank's."""

import numpy as np
import pytest
import tensorflow as tf
from modes import in_both_modes, run

import tfhvd as hvd
from tfhvd.horovod_alias import collectives as horovod

pytestmark = pytest.mark.ranks(1, 2, 4)

ROWS = 3  # of a rank


def _contrastive(mine, every, first):
    """Each row is to be more like itself than like any other rank's."""
    labels = first + tf.range(len(mine))
    logits = tf.matmul(mine, every, transpose_b=True)
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))


def _near(mine, root):
    return tf.reduce_mean((mine - root) ** 2 * mine)


def _loss(case, mine, rank):
    if case == "allgather":
        return _contrastive(mine, hvd.allgather(mine), rank * ROWS)
    if case == "grouped_allgather":
        halves = hvd.grouped_allgather([mine[:, :2], mine[:, 2:]])
        return _contrastive(mine, tf.concat(halves, 1), rank * ROWS)
    if case == "broadcast":
        return _near(mine, hvd.broadcast(mine, 0))
    if case == "allreduce":
        return _near(mine, hvd.allreduce(mine))
    every = hvd.reducescatter(tf.tile(mine, [hvd.size(), 1]))  # the same rows of all ranks
    return _near(mine, every)


def _loss_of_one(case, every, ranks):
    parts = tf.split(every, ranks)
    if "gather" in case:
        return _contrastive(every, every, 0)
    other = parts[0] if case == "broadcast" else tf.add_n(parts) / ranks
    return tf.add_n([_near(part, other) for part in parts]) / ranks


@in_both_modes
@pytest.mark.parametrize(
    "case", ["allgather", "grouped_allgather", "broadcast", "allreduce", "reducescatter"]
)
def test_the_average_gradient_is_that_of_the_mean_loss(mode, case):
    data = np.random.default_rng(1).normal(size=(ROWS * hvd.size(), 2)).astype(np.float32)
    kernel = tf.Variable(np.random.default_rng(2).normal(size=(2, 4)).astype(np.float32))

    def step(x):
        with tf.GradientTape() as tape:
            loss = _loss(case, tf.matmul(x, kernel), hvd.rank())
        return hvd.DistributedGradientTape(tape).gradient(loss, kernel)

    with tf.GradientTape() as tape:
        loss = _loss_of_one(case, tf.matmul(data, kernel), hvd.size())
    mine = data[ROWS * hvd.rank() :][:ROWS]
    expected = tape.gradient(loss, kernel)
    np.testing.assert_allclose(run(mode, step, tf.constant(mine)), expected, rtol=1e-5, atol=1e-6)


@in_both_modes
def test_under_horovods_names_gradients_are_scaled_as_horovods(mode):
    n, rank = hvd.size(), hvd.rank()

    def gradients(x, of):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            results = {
                "allgather": of.allgather(x),
                "grouped_allgather": tf.concat(of.grouped_allgather([x, x]), 0)[: n * n],
                "broadcast": of.broadcast(x, 0),
                "reducescatter": of.reducescatter(x, op=hvd.Sum),
                "grouped_reducescatter": of.grouped_reducescatter([x])[0],
            }
            losses = {name: tf.reduce_sum(y * (rank + 1)) for name, y in results.items()}
        return {name: tape.gradient(loss, x) for name, loss in losses.items()}

    x = tf.ones([n, 2])
    ours = run(mode, lambda x: gradients(x, hvd), x)
    theirs = run(mode, lambda x: gradients(x, horovod), x)
    for name, gradient in ours.items():
        factor = n if "scatter" in name else 1 / n
        np.testing.assert_allclose(theirs[name], gradient * factor, rtol=1e-6, err_msg=name)
    total = n * (n + 1) / 2  # of the ranks' factors
    np.testing.assert_allclose(theirs["allgather"], np.full((n, 2), total / n), rtol=1e-6)


@in_both_modes
def test_what_horovods_names_take_and_give_is_the_same(mode):
    def f(x):
        whole = tf.sparse.from_dense(x)
        sparse = horovod.allgather(whole, name="entries")
        return tf.sparse.to_dense(sparse), horovod.allgather(tf.cast(x, tf.int32), name="numbers")

    dense, numbers = run(mode, f, tf.fill([1, 2], float(hvd.rank() + 1)))
    expected = np.repeat(np.arange(1, hvd.size() + 1), 2).reshape(-1, 2)
    np.testing.assert_array_equal(dense, expected)
    np.testing.assert_array_equal(numbers, expected)
    rows = horovod.allgather(tf.ones([2, 1]), process_set=hvd.global_process_set)
    assert rows.shape == [2 * hvd.size(), 1]


def test_rows_that_are_taken_from_a_result_have_a_gradient():
    """Of a gather TensorFlow gives IndexedSlices back."""
    x = tf.Variable(tf.ones([2, 1]))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.gather(horovod.allgather(x), [0, 0]))
    gradient = tape.gradient(loss, x)
    np.testing.assert_allclose(gradient, [[2.0 * (hvd.rank() == 0)], [0.0]])
