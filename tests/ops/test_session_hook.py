"""Graphs and sessions, as in TensorFlow 1."""

import threading

import numpy as np
import pytest
import tensorflow as tf
from variants import also, first_of

import tfhvd as hvd

pytestmark = pytest.mark.ranks(1, 2, 4)

v1 = tf.compat.v1


def mean():
    return np.mean([rank + 1.0 for rank in range(hvd.size())])


def test_operations_and_their_gradients():
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [2])
        y = hvd.allreduce(x, op=hvd.Sum)
        [gradient] = tf.gradients(y * (hvd.rank() + 1.0), x)
        rows = hvd.allgather(x[tf.newaxis])
        of_root = hvd.broadcast(x, root_rank=hvd.size() - 1)
        for factor in (1.0, 3.0):
            given = factor * np.array([1.0, hvd.rank()])
            results = session.run([y, gradient, rows, of_root], {x: given})
            every = [factor * np.array([1.0, rank]) for rank in range(hvd.size())]
            expected = [np.sum(every, 0), [hvd.size() * mean()] * 2, every, every[-1]]
            for actual, wanted in zip(results, expected):
                np.testing.assert_allclose(actual, wanted)


# Each takes a tensor of 2 rows for each rank, and gives one.
OPERATIONS = {
    "allreduce": lambda x: hvd.allreduce(x),
    "allreduce, Product": lambda x: hvd.allreduce(x, op=hvd.Product, prescale_factor=0.5),
    "allreduce, Adasum": lambda x: hvd.allreduce(x, op=hvd.Adasum),
    "grouped_allreduce": lambda x: tf.concat(hvd.grouped_allreduce([x, 2 * x], op=hvd.Max), 0),
    "allgather": lambda x: hvd.allgather(x[hvd.rank() :]),
    "grouped_allgather": lambda x: tf.concat(hvd.grouped_allgather([x, 2 * x[1:]]), 0),
    "reducescatter": lambda x: hvd.reducescatter(x[1:], op=hvd.Sum),
    "grouped_reducescatter": lambda x: tf.concat(hvd.grouped_reducescatter([x, x[:1]]), 0),
    "alltoall": lambda x: hvd.alltoall(x),
    "alltoall, uneven": lambda x: hvd.alltoall(x, [2 + hvd.size()] + [1] * (hvd.size() - 1))[0][1:],
    "broadcast": lambda x: hvd.broadcast(x, hvd.size() - 1),
    "places": lambda x: x * tf.cast(hvd.rank_op() + 10 * hvd.size_op(), x.dtype),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_as_eagerly(name):
    operation = OPERATIONS[name]
    rows = 2 * hvd.size() + (1 if "uneven" in name else 0)
    given = np.random.default_rng(hvd.rank()).uniform(0.5, 2.0, [rows, 3]).astype(np.float32)

    def loss(y):
        return tf.reduce_sum(y * y) * (hvd.rank() + 1.0)

    with tf.GradientTape() as tape:
        x = tf.constant(given)
        tape.watch(x)
        y = operation(x)
        total = loss(y)
    expected = [y, tape.gradient(total, x)]
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, given.shape)
        y = operation(x)
        wanted = [y, *tf.gradients(loss(y), x)]
        for actual, value in zip(session.run(wanted, {x: given}), expected):
            np.testing.assert_array_equal(actual, value)


# Losses to which one rank's result adds nothing, in ways that TensorFlow can see in advance.
LOSSES = {
    "times the rank": lambda y: tf.reduce_sum(y * y) * hvd.rank(),
    "a factor of the rank": lambda y: tf.reduce_sum(y * float(hvd.rank()) * y),
    "rows by the rank": lambda y: tf.reduce_sum(y[: hvd.rank()] ** 2),
}


@pytest.mark.ranks(2)
@pytest.mark.parametrize("way", ["plain", also("in a function")])
@pytest.mark.parametrize("name", first_of(OPERATIONS, 2))
def test_gradients_of_what_one_rank_has_no_use_for(name, way):
    """What TensorFlow leaves out of one rank's graph must leave no other rank waiting."""
    rows = 2 * hvd.size() + (1 if "uneven" in name else 0)
    given = np.random.default_rng(hvd.rank()).uniform(0.5, 2.0, [rows, 3]).astype(np.float32)
    operation = OPERATIONS[name]
    expected = []
    for loss in LOSSES.values():
        with tf.GradientTape() as tape:
            x = tf.constant(given)
            tape.watch(x)
            total = loss(operation(x * 1.5))
        expected.append(tape.gradient(total, x))
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.get_variable("x", initializer=given)
        session.run(v1.global_variables_initializer())
        function = tf.function(operation) if way == "in a function" else operation
        for loss, wanted in zip(LOSSES.values(), expected):
            [gradient] = tf.gradients(loss(function(x * 1.5)), x)
            # Grappler multiplies the factors in another order.
            np.testing.assert_allclose(session.run(gradient), wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.ranks(2, 4)
def test_the_graphs_of_gradients_are_the_same_on_every_rank():
    everywhere = {
        **OPERATIONS,
        "allgather": lambda x: hvd.allgather(x[1:]),
        "reducescatter": lambda x: hvd.reducescatter(x, op=hvd.Product),
    }
    with tf.Graph().as_default() as graph:
        for name, operation in everywhere.items():
            rows = 2 * hvd.size() + (1 if "uneven" in name else 0)
            x = v1.placeholder(tf.float32, [rows, 3])
            tf.gradients(tf.reduce_sum(operation(x)), x)
        nodes = [node.SerializeToString(deterministic=True) for node in graph.as_graph_def().node]
    theirs = hvd.broadcast_object(nodes)
    differing = [a for a, b in zip(nodes, theirs) if a != b]
    assert (differing, len(nodes)) == ([], len(theirs))


@pytest.mark.ranks(2, 4)
def test_places_and_process_sets():
    upper = hvd.add_process_set(range(hvd.size() // 2, hvd.size()))
    number = upper.process_set_id
    with tf.Graph().as_default(), v1.Session() as session:
        places = [
            *(hvd.rank_op(), hvd.local_rank_op(), hvd.size_op(), hvd.local_size_op()),
            *(hvd.size_op(number), hvd.process_set_included_op(number)),
        ]
        expected = [hvd.rank(), hvd.local_rank(), hvd.size(), hvd.local_size()]
        assert session.run(places) == [*expected, upper.size(), int(upper.included())]
        if upper.included():
            x = tf.constant([hvd.rank() + 1.0])
            y = hvd.allreduce(x, op=hvd.Sum, process_set=upper)
            [gradient] = tf.gradients(y, x)
            rows = hvd.allgather(x, process_set=upper)
            total, gradient, rows = session.run([y, gradient, rows])
            assert rows.tolist() == [rank + 1.0 for rank in upper.ranks]
            assert (total, gradient) == (sum(rows), upper.size())
    hvd.remove_process_set(upper)


def test_wrong_arguments_are_refused_where_the_graph_is_made():
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, [2])
        with pytest.raises(ValueError, match=r"Received: root_rank=-1. Expected: 0 to"):
            hvd.broadcast(x, root_rank=-1)
        with pytest.raises(ValueError, match=r"Received: op=17. Expected: hvd.Average"):
            hvd.allreduce(x, op=17)
        with pytest.raises(TypeError, match=r"Received: string. Expected: one of uint8"):
            hvd.allgather(v1.placeholder(tf.string, [2]))
        with pytest.raises(ValueError, match=r"needs at least one tensor"):
            hvd.grouped_allreduce([])


def test_broadcast_global_variables():
    with tf.Graph().as_default(), v1.Session() as session:
        weights = v1.get_variable("weights", initializer=tf.fill([3], float(hvd.rank())))
        # As all variables are where a program calls disable_resource_variables.
        own = tf.constant(hvd.rank(), tf.int64)
        count = v1.get_variable("count", initializer=own, use_resource=False)
        start = hvd.broadcast_global_variables(hvd.size() - 1)
        session.run(v1.global_variables_initializer())
        session.run(start)
        last = hvd.size() - 1
        np.testing.assert_array_equal(session.run(weights), [last] * 3)
        assert session.run(count) == last
    with pytest.raises(RuntimeError, match=r"call hvd.broadcast_variables\(model.variables"):
        hvd.broadcast_global_variables(0)


@pytest.mark.parametrize("passes", [1, 2])
def test_training_in_a_monitored_session(passes):
    with tf.Graph().as_default():
        weight = v1.get_variable("weight", initializer=10.0 * (hvd.rank() + 1))
        step = v1.train.get_or_create_global_step()
        optimizer = hvd.DistributedOptimizer(
            v1.train.MomentumOptimizer(0.5, momentum=0.5), backward_passes_per_step=passes
        )
        train = optimizer.minimize(weight * (hvd.rank() + 1.0), global_step=step)
        hooks = [hvd.BroadcastGlobalVariablesHook(0)]
        value, velocity = 10.0, 0.0
        with v1.train.MonitoredTrainingSession(hooks=hooks) as session:
            assert session.run(weight) == value
            for number in range(4):
                session.run(train)
                if number % passes == passes - 1:
                    velocity = 0.5 * velocity + passes * mean()
                    value -= 0.5 * velocity
                np.testing.assert_allclose(session.run(weight), value)
            assert session.run(step) == 4 // passes


def test_objects(monkeypatch):
    last = hvd.size() - 1
    mine = {"rank": hvd.rank(), "data": "x" * 1000 * hvd.rank()}
    theirs = {"rank": last, "data": "x" * 1000 * last}
    with tf.Graph().as_default() as graph, v1.Session() as session:
        if hvd.rank() == last:
            tf.constant(1.0)  # the ranks' graphs differ
        from_last = hvd.broadcast_object_fn(last, session=session)
        assert hvd.allgather_object(hvd.rank(), session=session) == list(range(hvd.size()))
        graph.finalize()
        for _ in range(2):
            assert from_last(mine) == theirs
            assert hvd.broadcast_object(mine, last, session=session) == theirs
        assert hvd.allgather_object("x" * hvd.rank(), session=session)[last] == "x" * last
        with pytest.raises(ValueError, match=f"The object of rank {last} cannot be pickled"):
            hvd.broadcast_object(threading.Lock(), last, session=session)
        # As in a program that has switched eager execution off.
        off = "executing_eagerly_outside_functions"
        monkeypatch.setattr(v1, off, lambda: False)
        assert hvd.broadcast_object(mine, last) == theirs
    with pytest.raises(ValueError, match=r"there is no default session; pass session="):
        hvd.allgather_object(mine)


def test_variables_are_broadcast_by_the_operation_that_is_returned():
    with tf.Graph().as_default(), v1.Session() as session:
        weights = v1.get_variable("weights", initializer=[float(hvd.rank()), 1.0])
        other = tf.Variable(10 * hvd.rank())
        start = hvd.broadcast_variables([weights, other], root_rank=hvd.size() - 1)
        assert isinstance(start, tf.Operation)
        session.run(v1.global_variables_initializer())
        session.run(start)
        last = hvd.size() - 1
        np.testing.assert_array_equal(session.run(weights), [last, 1.0])
        assert session.run(other) == 10 * last
    assert hvd.broadcast_variables([tf.Variable(1.0)], root_rank=0) is None
