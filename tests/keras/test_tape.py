"""DistributedGradientTape."""

import numpy as np
import pytest
import tensorflow as tf

import tfhvd as hvd

pytestmark = pytest.mark.ranks(1, 2, 4)


def mine() -> float:
    return hvd.rank() + 1.0


def mean() -> float:
    return float(np.mean([rank + 1.0 for rank in range(hvd.size())]))


def in_both_modes(function):
    """Calls a function eagerly and as a tf.function; gives both results."""
    return [function(), tf.function(function)()]


def test_as_context_manager_and_around_a_tape_that_has_recorded():
    x = tf.Variable([1.0, 2.0])

    def as_context_manager():
        with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
            loss = tf.reduce_sum(x * x) * mine()
        return tape.gradient(loss, x)

    def around():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(x * x) * mine()
        return hvd.DistributedGradientTape(tape).gradient(loss, x)

    for gradient in [*in_both_modes(as_context_manager), *in_both_modes(around)]:
        np.testing.assert_allclose(gradient, 2 * mean() * np.array([1.0, 2.0]))


def test_is_a_gradient_tape():
    tape = hvd.DistributedGradientTape(tf.GradientTape(persistent=True))
    assert isinstance(tape, tf.GradientTape)
    x = tf.Variable(1.0)
    with tape:
        _ = x * 2
    assert [v.ref() for v in tape.watched_variables()] == [x.ref()]


def test_sources_of_any_structure():
    a, b = tf.Variable(1.0), tf.Variable([2.0])
    unused = tf.Variable(3.0)

    def gradients():
        with hvd.DistributedGradientTape(tf.GradientTape(persistent=True)) as tape:
            loss = a * a * mine() + tf.reduce_sum(b) * mine()
        sources = {"a": a, "more": [b, (unused,)]}
        return tape.gradient(loss, sources), tape.gradient(loss, sources["more"])

    for of_dict, of_list in in_both_modes(gradients):
        np.testing.assert_allclose(of_dict["a"], 2 * mean())
        np.testing.assert_allclose(of_dict["more"][0], [mean()])
        assert of_dict["more"][1] == (None,)
        np.testing.assert_allclose(of_list[0], [mean()])


def test_persistent_tape_twice_in_one_graph():
    x = tf.Variable([1.0, 2.0])

    def gradients():
        with hvd.DistributedGradientTape(tf.GradientTape(persistent=True)) as tape:
            first, second = tf.reduce_sum(x) * mine(), tf.reduce_sum(x * x) * mine()
        return tape.gradient(first, x), tape.gradient(second, x)

    for first, second in in_both_modes(gradients):
        np.testing.assert_allclose(first, [mean()] * 2)
        np.testing.assert_allclose(second, [2 * mean(), 4 * mean()])


def test_output_gradients_and_unconnected_gradients():
    x, unused = tf.Variable([1.0, 2.0]), tf.Variable([3.0])

    def gradients():
        with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
            y = x * mine()
        return tape.gradient(
            y,
            [x, unused],
            output_gradients=tf.constant([1.0, 10.0]),
            unconnected_gradients=tf.UnconnectedGradients.ZERO,
        )

    for of_x, of_unused in in_both_modes(gradients):
        np.testing.assert_allclose(of_x, [mean(), 10 * mean()])
        np.testing.assert_allclose(of_unused, [0.0])


def test_tensors_as_sources():
    x = tf.constant([1.0, 2.0])
    with hvd.DistributedGradientTape(tf.GradientTape(), op=hvd.Sum) as tape:
        tape.watch(x)
        loss = tf.reduce_sum(x) * mine()
    np.testing.assert_allclose(tape.gradient(loss, x), [hvd.size() * mean()] * 2)


def test_jacobians_are_this_ranks_own():
    x = tf.constant([[1.0, 2.0]])
    with hvd.DistributedGradientTape(tf.GradientTape(persistent=True)) as tape:
        tape.watch(x)
        y = x * mine()
    for jacobian in [tape.jacobian(y, x), tape.batch_jacobian(y, x)]:
        np.testing.assert_allclose(tf.reshape(jacobian, [2, 2]), np.eye(2) * mine())


@pytest.mark.parametrize("sparse_as_dense", [False, True])
def test_indexed_slices(sparse_as_dense):
    table = tf.Variable(tf.ones([5, 2]))
    rows = tf.constant([0, 0, 1 + hvd.rank()])

    def gradient():
        wrapped = hvd.DistributedGradientTape(
            tf.GradientTape(), op=hvd.Sum, sparse_as_dense=sparse_as_dense
        )
        with wrapped as tape:
            loss = tf.reduce_sum(tf.gather(table, rows))
        result = tape.gradient(loss, table)
        assert isinstance(result, tf.IndexedSlices) is not sparse_as_dense
        return tf.convert_to_tensor(result)

    expected = np.zeros((5, 2))
    expected[0] = 2 * hvd.size()
    expected[1 : 1 + hvd.size()] = 1
    for result in in_both_modes(gradient):
        np.testing.assert_allclose(result, expected)


@pytest.mark.parametrize(
    "arguments",
    [
        {"num_groups": 2},
        {"groups": 1},
        {"gradient_predivide_factor": 2.0},
        {"compression": hvd.Compression.bf16},
    ],
    ids=str,
)
def test_arguments(arguments):
    variables = [tf.Variable([float(i)]) for i in range(3)]

    def gradients():
        with hvd.DistributedGradientTape(tf.GradientTape(), **arguments) as tape:
            loss = tf.add_n([v[0] * mine() for v in variables])
        return tape.gradient(loss, variables)

    for result in in_both_modes(gradients):
        np.testing.assert_allclose(result, [[mean()]] * 3)


def test_what_is_refused():
    with pytest.raises(TypeError, match=r"Expected: a tf.GradientTape"):
        hvd.DistributedGradientTape(None)
    with pytest.raises(ValueError, match="is already wrapped for tfhvd; pass the original object"):
        hvd.DistributedGradientTape(hvd.DistributedGradientTape(tf.GradientTape()))
    with pytest.raises(ValueError, match="Received: op="):
        hvd.DistributedGradientTape(tf.GradientTape(), op="sum")
    with pytest.raises(ValueError, match="process set is not registered"):
        hvd.DistributedGradientTape(tf.GradientTape(), process_set=hvd.ProcessSet([0]))
