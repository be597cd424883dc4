"""The names that collectives have in graphs, where scopes and kinds are part of them."""

import resource
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import tfhvd as hvd

pytestmark = pytest.mark.ranks(1, 2)

v1 = tf.compat.v1


def collectives(graph):
    """By operation's name: the collective's."""
    return {
        o.name: o.get_attr("tensor_name").decode()
        for o in graph.get_operations()
        if o.type.startswith("Tfhvd") and o.type != "TfhvdTopologyValue"
    }


def test_a_given_name_is_scoped_and_used_once():
    with tf.Graph().as_default() as graph, v1.Session() as session:
        x = tf.constant([1.0])
        with tf.name_scope("tower"):
            first = hvd.allreduce(x, op=hvd.Sum, name="loss")
            second = hvd.allreduce(2 * x, op=hvd.Sum, name="loss")
        with tf.name_scope("other"):
            third = hvd.allgather(x, name="loss")
            bare = hvd.broadcast(3 * x, 0, name="loss", ignore_name_scope=True)
            grouped = hvd.grouped_allreduce([x, x], op=hvd.Sum, name="a loss")
            again = hvd.alltoall(tf.ones([hvd.size()]), name="loss", ignore_name_scope=True)
        assert collectives(graph) == {
            "tower/TfhvdAllreduce_loss": "tower/loss",
            "tower/TfhvdAllreduce_loss_1": "tower/loss_1",
            "other/TfhvdAllgather_loss": "other/loss",
            "other/TfhvdBroadcast_loss": "loss",
            "other/TfhvdGroupedAllreduce_a_loss": "other/a loss",
            "other/TfhvdAlltoall_loss_1": "loss_1",
        }
        n = hvd.size()
        results = session.run([first, second, third, bare, grouped[1], again])
        for result, expected in zip(results, ([n], [2 * n], [1] * n, [3], [n], [1] * n)):
            np.testing.assert_array_equal(result, expected)


@pytest.mark.ranks(2)
def test_ranks_with_other_scopes_meet_where_these_are_left_out():
    @tf.function
    def f(x):
        with tf.name_scope(f"tower_{hvd.rank()}"):
            ours = hvd.allreduce(x, op=hvd.Sum, name="it", ignore_name_scope=True)
            return ours, hvd.grouped_allgather([x], name="them", ignore_name_scope=True)[0]

    total, both = f(tf.constant([1.0]))
    np.testing.assert_array_equal(total, [2.0])
    np.testing.assert_array_equal(both, [1.0, 1.0])


@pytest.mark.ranks(2)
def test_each_process_set_has_names_of_its_own():
    first = hvd.add_process_set([0])

    @tf.function
    def f(x):
        if first.included():
            x = hvd.allreduce(x, name="it", process_set=first)
        return hvd.allreduce(x, op=hvd.Sum, name="it")

    assert f(tf.constant(1.0)) == 2.0
    hvd.remove_process_set(first)


def test_a_name_may_be_given_in_every_round_of_a_loop():
    @tf.function
    def f(x):
        return [hvd.allreduce(x * i, op=hvd.Sum, name="round") for i in range(3)]

    np.testing.assert_array_equal(f(tf.constant(1.0)), np.arange(3.0) * hvd.size())
    assert sorted(collectives(f.get_concrete_function(tf.constant(1.0)).graph).values()) == [
        *("round", "round_1", "round_2")
    ]


def test_unnamed_operations_have_their_kind_in_their_names():
    with tf.Graph().as_default() as graph:
        with tf.name_scope("tower"):
            x = v1.placeholder(tf.float32, [2], name="x")
            hvd.reducescatter(x)
        [(operation, name)] = collectives(graph).items()
        assert operation.startswith("tower/TfhvdReducescatter_")
        assert name.startswith("reducescatter.") and name.endswith("tower/x")


@pytest.mark.ranks(2)
def test_unnamed_operations_meet_whatever_number_keras_gave_a_layer():
    @tf.function
    def f(x):
        results = []
        for layer in range(2):
            with tf.name_scope(f"dense_{3 * hvd.rank() + layer}_1"):
                results.append(hvd.allreduce(x + layer, op=hvd.Sum))
        return results

    np.testing.assert_array_equal(f(tf.constant(1.0)), [2.0, 4.0])
    names = list(collectives(f.get_concrete_function(tf.constant(1.0)).graph).values())
    assert names == ["allreduce.f.dense/add", "allreduce.f.dense/add_1"]


@pytest.mark.ranks(2)
def test_unnamed_operations_of_a_process_set_do_not_count_for_the_others():
    first = hvd.add_process_set([0])

    @tf.function
    def f(x):
        if first.included():
            hvd.allreduce(x, process_set=first)
        return hvd.allreduce(x, op=hvd.Sum)

    assert f(tf.constant(1.0)) == 2.0
    hvd.remove_process_set(first)


def test_gradients_have_names_of_their_own():
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [2])
        y = hvd.allreduce(x, name="it") + hvd.allreduce(2 * x, name="it")
        tf.gradients(y, x)
        names = list(collectives(graph).values())
        assert sorted(names) == ["it", "it/gradient", "it_1", "it_1/gradient"]


# A script may name a collective anew in each step. TensorFlow keeps a kernel of 37 KB for each
# value of an attribute.
@pytest.mark.ranks(2)
def test_a_name_of_an_eager_collective_is_not_kept():
    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    x = tf.ones([4])
    for i in range(100):
        hvd.allreduce(x, name=f"first_{i}")
    before = resident()
    for i in range(500):
        hvd.allreduce(x, name=f"loss_{i}")
    assert resident() - before < 500 * 10000


@pytest.mark.ranks(2)
def test_the_gradient_of_a_named_eager_collective_is_of_its_process_set():
    sets = [hvd.add_process_set([0]), hvd.add_process_set([1])]
    x = tf.constant([1.0, 2.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = hvd.allreduce(3 * x, op=hvd.Sum, name="it", process_set=sets[hvd.rank()])
    np.testing.assert_array_equal(y, [3.0, 6.0])
    np.testing.assert_array_equal(tape.gradient(y, x), [3.0, 3.0])
    for each in sets:
        hvd.remove_process_set(each)
