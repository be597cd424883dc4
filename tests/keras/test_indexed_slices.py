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
    assert ways == ["rows", "rows", "whole", "rows"]


@pytest.mark.parametrize("density", [0.0, 0.25, 1.0])
def test_in_a_function(density):
    """Either way is taken, as the density of the step before says."""
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


def test_a_tape_in_every_step_remembers(monkeypatch):
    ways = counted(monkeypatch)
    table = tf.Variable(tf.ones([ROWS, 2]))
    for _ in range(3):
        with hvd.DistributedGradientTape(tf.GradientTape(), op=hvd.Sum) as tape:
            loss = tf.reduce_sum(tf.gather(table, list(range(ROWS))))
        gradient = tape.gradient(loss, table)
        expected = np.full((ROWS, 2), float(hvd.size()))
        np.testing.assert_array_equal(tf.convert_to_tensor(gradient), expected)
    assert ways == ["rows", "whole", "whole"]


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
