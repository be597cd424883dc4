"""IndexedSlices: as rows or as whole tensors, by their density, with the same result."""

import numpy as np
import pytest
import tensorflow as tf

import tfhvd as hvd
from tfhvd.gradients.indexed_slices import SlicesReducer
from tfhvd.gradients.options import ReductionOptions
from tfhvd.gradients.reducer import GradientReducer

pytestmark = pytest.mark.ranks(2, 4)

ROWS = 8


def slices(rows, seed=0):
    values = np.random.default_rng([seed, hvd.rank()]).integers(-3, 4, (len(rows), 2))
    return tf.IndexedSlices(
        tf.constant(values, tf.float32), tf.constant(rows, tf.int32), tf.constant([ROWS, 2])
    )


def as_dense(result):
    """The table that slices stand for; each index may come once."""
    indices = np.array(result.indices)
    assert len(set(indices)) == len(indices)
    return tf.convert_to_tensor(result).numpy(), set(indices)


def counted(monkeypatch):
    """Notes by which way slices travel."""
    ways = []
    for way, name in (("rows", "_by_rows"), ("whole", "_as_a_whole")):
        plain = getattr(SlicesReducer, name)

        def noted(*args, way=way, plain=plain):
            ways.append(way)
            return plain(*args)

        monkeypatch.setattr(SlicesReducer, name, noted)
    return ways


@pytest.mark.ranks(2)
@pytest.mark.parametrize("op", [hvd.Average, hvd.Sum])
def test_the_way_follows_the_density(monkeypatch, op):
    ways = counted(monkeypatch)
    variable = tf.Variable(tf.zeros([ROWS, 2]))
    reduce = SlicesReducer(op, hvd.Compression.none, "", hvd.global_process_set, density=1.0)
    few, many = [hvd.rank(), 5], list(range(hvd.rank(), ROWS - 1))  # 4 of 8 rows; 13 of 8
    for number, rows in enumerate([few, many, few, few]):
        own = slices(rows, seed=number)
        expected = hvd.allreduce(tf.convert_to_tensor(own), op=op).numpy()
        table, indices = as_dense(reduce(own, variable, "slices"))
        np.testing.assert_array_equal(table, expected)
        assert indices == {row for each in hvd.allgather_object(rows) for row in each}
    assert ways == ["rows", "whole", "rows", "rows"]


@pytest.mark.parametrize("density", [0.0, 0.25, 1.0])
def test_in_a_function(density):
    """Either way is taken, as the density of the step says."""
    variable = tf.Variable(tf.zeros([ROWS, 2]))
    reduce = SlicesReducer(
        hvd.Average, hvd.Compression.none, "", hvd.global_process_set, density=density
    )

    @tf.function(reduce_retracing=True)
    def step(values, indices):
        whole = tf.constant([ROWS, 2])
        result = reduce(tf.IndexedSlices(values, indices, whole), variable, "slices")
        return result.values, result.indices

    for number, count in enumerate([1, 8, 8, 2, 0, 3]):
        own = slices(list(range(count)) if hvd.rank() else [7, 1], seed=number)
        expected = hvd.allreduce(tf.convert_to_tensor(own)).numpy()
        values, indices = step(own.values, own.indices)
        table, _ = as_dense(tf.IndexedSlices(values, indices, own.dense_shape))
        np.testing.assert_array_equal(table, expected)


def gradient_of(table, indices):
    with hvd.DistributedGradientTape(tf.GradientTape(), op=hvd.Sum) as tape:
        loss = tf.reduce_sum(tf.gather(table, indices))
    return tf.convert_to_tensor(tape.gradient(loss, table))


def expected_of(*lists):
    counts = np.bincount([index for indices in lists for index in indices], minlength=ROWS)
    return np.repeat(counts[:, np.newaxis], 2, axis=1)


@pytest.mark.parametrize("mode", ["eager", "function"])
def test_the_way_is_that_of_all_ranks_after_a_join(mode):
    """The ranks that were there last have seen other gradients than those that had joined."""
    table = tf.Variable(tf.zeros([ROWS, 2]))
    step = tf.function(gradient_of) if mode == "function" else gradient_of
    few, many = [hvd.rank(), 5], list(range(ROWS))
    last = hvd.size() - 1
    for together, alone in [(few, many), (many, few)]:
        step(table, tf.constant(together))
        if hvd.rank() == last:
            step(table, tf.constant(alone))
        assert hvd.join() == last
        hvd.broadcast_variables([table], root_rank=last)
        of_ranks = [[rank, 5] for rank in range(hvd.size())]
        np.testing.assert_array_equal(step(table, tf.constant(few)), expected_of(*of_ranks))


def test_the_way_is_that_of_all_ranks_where_one_has_another_variable():
    """As where rank 0 alone loads a model."""
    table = tf.Variable(tf.zeros([ROWS, 2]), name="table")
    many = list(range(ROWS))
    for _ in range(2):
        gradient = gradient_of(table, many)
        np.testing.assert_array_equal(gradient, expected_of(*[many] * hvd.size()))
        if hvd.rank() == 0:
            table = tf.Variable(tf.zeros([ROWS, 2]), name="table")


def test_in_a_session():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        table = tf.compat.v1.get_variable("table", [ROWS, 2], initializer=tf.ones_initializer())
        indices = tf.compat.v1.placeholder(tf.int32, [None])
        gradient = gradient_of(table, indices)
        session.run(tf.compat.v1.global_variables_initializer())
        for own in [[0], list(range(ROWS))]:
            expected = expected_of(*[own] * hvd.size())
            np.testing.assert_array_equal(session.run(gradient, {indices: own}), expected)


@pytest.mark.parametrize("mode", ["eager", "function"])
@pytest.mark.parametrize("together", [1, "lists"])
def test_groups_of_dense_and_sparse(mode, together):
    tables = [tf.Variable(tf.zeros([ROWS, 2])), tf.Variable(tf.zeros([3 * ROWS, 2]))]
    weights = [tf.Variable(tf.zeros([3])), tf.Variable(tf.zeros([2, 2]))]
    variables = [tables[0], weights[0], tables[1], weights[1]]
    groups = 1 if together == 1 else [variables]
    reduce = GradientReducer(ReductionOptions(name="mixed", op=hvd.Sum, groups=groups))

    def gradients():
        part = float(hvd.rank() + 1)
        first = tf.IndexedSlices(tf.fill([2, 2], part), tf.constant([0, 0]), tf.constant([ROWS, 2]))
        second = tf.IndexedSlices(
            tf.fill([1, 2], part), tf.constant([3 * ROWS - 1]), tf.constant([3 * ROWS, 2])
        )
        return [first, tf.fill([3], part), second, tf.fill([2, 2], part)]

    def step():
        return [tf.convert_to_tensor(g) for g in reduce(gradients(), variables)]

    total = sum(rank + 1.0 for rank in range(hvd.size()))
    first, dense, second, square = (tf.function(step) if mode == "function" else step)()
    assert first.shape == [ROWS, 2] and second.shape == [3 * ROWS, 2]
    np.testing.assert_array_equal(first, np.eye(ROWS, 1) * [[2 * total, 2 * total]])
    np.testing.assert_array_equal(second[:-1], np.zeros((3 * ROWS - 1, 2)))
    np.testing.assert_array_equal(second[-1], [total, total])
    np.testing.assert_array_equal(dense, [total] * 3)
    np.testing.assert_array_equal(square, [[total] * 2] * 2)
