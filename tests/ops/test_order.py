"""Collectives in any order, many at once, and the names by which ranks meet."""

import concurrent.futures
import random
import threading
import time

import numpy as np
import pytest
import tensorflow as tf
import troubleshooting

import tfhvd as hvd
from tfhvd.ops import _threads
from tfhvd.ops.names import Name, name_of

pytestmark = pytest.mark.ranks(1, 2)


@pytest.mark.ranks(1, 2, 4)
def test_many_tensors_in_another_order_on_each_rank():
    count = 100

    @tf.function
    def f(x):
        results = [None] * count
        for i in random.Random(hvd.rank()).sample(range(count), count):
            kind = i % 3
            y = x * (i + 1) * (hvd.rank() + 1)
            if kind == 0:
                results[i] = hvd.allreduce(y, op=hvd.Sum, name=f"many.{i}")
            elif kind == 1:
                results[i] = hvd.allgather(y, name=f"many.{i}")
            else:
                results[i] = hvd.broadcast(y, i % hvd.size(), name=f"many.{i}")
        return results

    ranks = np.arange(hvd.size()) + 1
    for width in (1, 17, 1):
        for i, result in enumerate(f(tf.ones([width]))):
            unit = np.ones(width) * (i + 1)
            expected = [unit * ranks.sum(), np.concatenate([unit * r for r in ranks])]
            expected.append(unit * (i % hvd.size() + 1))
            np.testing.assert_array_equal(result, expected[i % 3])


@pytest.mark.ranks(2, 4)
def test_tensors_become_ready_at_other_times_on_each_rank():
    # Ranks that are late find several agreements at once; what they fuse must not depend on that.
    count = 40
    late = set(random.Random(100 + hvd.rank()).sample(range(count), count // 3))

    @tf.function
    def f(x):
        slow = tf.random.normal([100, 100])
        results = []
        for i in range(count):
            y = tf.cast(tf.fill([i % 7 + 1], i), tf.int64 if i % 2 else tf.float32)
            if i in late:
                slow = tf.linalg.matmul(slow, slow)
                y += tf.cast(tf.math.abs(slow[0, 0]) < -1.0, y.dtype)  # 0, later
            if i % 3:
                results.append(hvd.broadcast(y + tf.cast(x, y.dtype), 0, name=f"ready.{i}"))
            else:
                results.append(hvd.allreduce(y, op=hvd.Max, name=f"ready.{i}"))
        return results

    for _ in range(30):
        for i, result in enumerate(f(tf.constant(hvd.rank()))):
            np.testing.assert_array_equal(result, np.full(i % 7 + 1, i))


def test_a_function_does_not_run_its_collectives_one_after_the_other():
    # In program order each rank would wait for what the other one has not come to.
    @tf.function
    def f(x):
        names = ["first", "second"] if hvd.rank() == 0 else ["second", "first"]
        return [hvd.allreduce(x, name=f"free.{name}") for name in names]

    np.testing.assert_array_equal(f(tf.constant(1.0)), [1.0, 1.0])


def test_results_that_nobody_uses_are_computed_all_the_same():
    @tf.function
    def f(x):
        hvd.allreduce(x, name="unused")
        return x

    graph = f.get_concrete_function(tf.constant(1.0)).graph
    assert any(o.type == "TfhvdAllreduce" for o in graph.get_operations())
    assert f(tf.constant(1.0)) == 1.0


def test_constants_are_reduced_in_every_step():
    @tf.function
    def f():
        one = tf.constant(1.0)
        first = hvd.allreduce(one, op=hvd.Sum, name="constant.a")
        second = hvd.allreduce(one, op=hvd.Sum, name="constant.b")
        return first + second

    assert f() == 2.0 * hvd.size()
    assert f() == 2.0 * hvd.size()


def test_loops_and_branches():
    @tf.function
    def f(x, n):
        for _ in tf.range(n):
            x = hvd.allreduce(x + 1, op=hvd.Average)
            if tf.reduce_sum(x) > 3:
                x = hvd.allreduce(x * 2, op=hvd.Max)
            else:
                x = hvd.allreduce(x * 2, op=hvd.Max)
        return x

    assert f(tf.constant(0.0), tf.constant(4)) == 30.0


def test_mapped_functions():
    @tf.function
    def f(x):
        return tf.map_fn(lambda e: hvd.allreduce(e * (hvd.rank() + 1), op=hvd.Sum), x)

    total = sum(range(1, hvd.size() + 1))
    np.testing.assert_array_equal(f(tf.range(20.0)), np.arange(20.0) * total)


def test_names_in_a_graph_are_used_once_and_equal_on_every_rank():
    def names():
        @tf.function
        def inner(x):
            return hvd.allreduce(x) + hvd.allreduce(x)

        @tf.function
        def outer(x):
            y = inner(x) + hvd.allreduce(x)
            if tf.reduce_sum(y) > 0:
                y += hvd.allreduce(x)
            return y

        definition = outer.get_concrete_function(tf.TensorSpec([2])).graph.as_graph_def()
        nodes = [definition.node, *(f.node_def for f in definition.library.function)]
        reductions = [n for part in nodes for n in part if n.op == "TfhvdAllreduce"]
        return sorted(n.attr["tensor_name"].s.decode() for n in reductions)

    first = names()
    assert len(first) >= 4
    assert len(set(first)) == len(first)
    assert names() == first
    assert hvd.allgather_object(first) == [first] * hvd.size()


def test_eager_calls_share_one_name_and_so_one_kernel():
    assert name_of("allreduce", None, tf.constant(1.0)) == Name("allreduce.eager", True)
    assert name_of("allreduce", None, tf.constant([2])) == Name("allreduce.eager", True)


@pytest.mark.ranks(2)
def test_a_name_twice_at_once_is_an_error_and_can_be_used_again():
    # In one function it would be made two names.
    functions = [tf.function(lambda x: hvd.allreduce(x, op=hvd.Sum, name="twice")) for _ in "12"]
    for function in functions:
        function.get_concrete_function(tf.TensorSpec([]))
    if hvd.rank() == 0:  # Alone, so that the first is surely under way when the second comes.
        with concurrent.futures.ThreadPoolExecutor(2) as threads:
            calls = [threads.submit(function, tf.constant(1.0)) for function in functions]
            [refused], [first] = concurrent.futures.wait(calls, return_when="FIRST_COMPLETED")
            hvd.barrier()  # the other calls it now
            assert first.result() == 2.0
        with pytest.raises(tf.errors.InvalidArgumentError, match="'twice'"):
            refused.result()
    else:
        hvd.barrier()
        assert functions[0](tf.constant(1.0)) == 2.0
    assert hvd.allreduce(1.0, op=hvd.Sum, name="twice") == 2.0


@pytest.mark.ranks(2, 4)
def test_an_eager_call_of_a_name_in_flight_is_refused():
    def call():
        return hvd.allreduce(1.0, op=hvd.Sum, name="eager.twice")

    if hvd.rank() > 0:
        hvd.barrier()
        assert call() == hvd.size()
        return
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        calls = {threads.submit(call) for _ in range(2)}
        [refused], [first] = concurrent.futures.wait(calls, return_when="FIRST_COMPLETED")
        hvd.barrier()  # the others call it now
        assert first.result() == hvd.size()
    with pytest.raises(
        tf.errors.InvalidArgumentError,
        match=r"'eager.twice' .* on rank 0 .* Give each .* a name of its own",
    ):
        refused.result()


@pytest.fixture
def nobody_before(monkeypatch):
    """Forgets which threads there were, and afterwards those of the test."""
    monkeypatch.setattr(_threads, "_by_name", _threads._ByName())


def total(**given):
    return float(hvd.allreduce(1.0, op=hvd.Sum, **given))


@pytest.mark.usefixtures("nobody_before")
def test_a_thread_takes_over_unnamed_eager_calls():
    results = [total()]
    for _ in range(3):
        thread = threading.Thread(target=lambda: results.extend([total(), total()]))
        thread.start()
        thread.join()
        results.append(total())
    assert results == [hvd.size()] * 10


@pytest.mark.usefixtures("nobody_before")
def test_two_threads_with_unnamed_eager_calls_are_refused():
    with concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="other") as other:
        for _ in range(2):  # the one names what it does
            assert other.submit(total, name="of.the.other").result() == total() == hvd.size()
        assert other.submit(total).result() == hvd.size()
        text = (
            "'allreduce.eager' was called by the threads 'other_0' and 'MainThread' on rank "
            rf"{hvd.rank()}\. Pass name="
        )
        for call in (total, lambda: other.submit(total).result()):
            with pytest.raises(tf.errors.InvalidArgumentError, match=text) as raised:
                call()
            troubleshooting.check("Unnamed collectives from two threads", str(raised.value))
        assert hvd.allgather([1.0]).shape == [hvd.size()]  # of another kind


@pytest.mark.ranks(2)
@pytest.mark.usefixtures("nobody_before")
def test_two_threads_at_once_with_unnamed_eager_calls_are_refused():
    if hvd.rank() == 0:
        with concurrent.futures.ThreadPoolExecutor(1) as other:
            first = other.submit(total)
            while not any(s._under_way for s in _threads._by_name.values()):
                time.sleep(0.001)
            with pytest.raises(tf.errors.InvalidArgumentError, match="two threads do not have"):
                total()
            hvd.barrier(name="refused")
            assert first.result() == 2.0
    else:
        hvd.barrier(name="refused")
        assert total() == 2.0


@pytest.mark.usefixtures("nobody_before")
def test_threads_of_tensorflow_count_as_one():
    def numbers():
        for _ in range(3):
            yield total()

    dataset = tf.data.Dataset.from_generator(
        numbers, output_signature=tf.TensorSpec([], tf.float32)
    )
    assert [float(x) for x in dataset.prefetch(2)] == [hvd.size()] * 3
    assert total() == hvd.size()
    with pytest.raises(tf.errors.OpError, match="and 'a thread of TensorFlow'"):
        list(dataset)
