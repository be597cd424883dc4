"""Process sets: collectives of some ranks, sets that come and go; graph-time values."""

import numpy as np
import pytest
import tensorflow as tf
from modes import in_both_modes, run
from with_xla import needs_xla

import tfhvd as hvd
from tfhvd.errors import InvalidSettingError
from tfhvd.ops import _threads

pytestmark = pytest.mark.ranks(1, 2, 4)


@pytest.fixture
def last():
    """The set of the last rank and, where there are four, the second."""
    ranks = [1, 3] if hvd.size() == 4 else [hvd.size() - 1]
    if hvd.size() == 1:
        yield hvd.global_process_set
        return
    process_set = hvd.add_process_set(ranks)
    yield process_set
    assert hvd.remove_process_set(process_set)


def ranks_of(process_set):
    return list(process_set.ranks or range(hvd.size()))


@in_both_modes
def test_every_collective(mode, last):
    ranks, me = ranks_of(last), float(hvd.rank())
    if last.included():
        x = tf.fill([3], me)
        assert run(mode, lambda x: hvd.allreduce(x, process_set=last), x)[0] == np.mean(ranks)
        a, b = run(
            mode, lambda x: hvd.grouped_allreduce([x, 2 * x], op=hvd.Sum, process_set=last), x
        )
        assert (a[0], b[0]) == (sum(ranks), 2 * sum(ranks))
        gathered = run(mode, lambda x: hvd.allgather(x, process_set=last), x[:1])
        np.testing.assert_array_equal(gathered, ranks)
        rows = run(mode, lambda x: hvd.reducescatter(x, op=hvd.Sum, process_set=last), x)
        assert len(rows) == len(np.array_split(range(3), len(ranks))[last.rank()])
        sent, counts = run(
            mode, lambda x: hvd.alltoall(x, [1] * len(ranks), process_set=last), x[: len(ranks)]
        )
        np.testing.assert_array_equal(sent, ranks)
        np.testing.assert_array_equal(counts, [1] * len(ranks))
        root = ranks[-1]  # a rank of the job
        assert run(mode, lambda x: hvd.broadcast(x, root, process_set=last), x)[0] == root
        hvd.barrier(process_set=last)
        variable = tf.Variable(me)
        hvd.broadcast_variables([variable], root_rank=root, process_set=last)
        assert variable == root
        assert hvd.broadcast_object(hvd.rank(), root, process_set=last) == root
        assert hvd.allgather_object(hvd.rank(), process_set=last) == ranks
    assert hvd.allreduce(tf.constant(1.0), op=hvd.Sum, name="after") == hvd.size()


@in_both_modes
def test_gradients(mode, last):
    if not last.included():
        return
    x = tf.ones([2]) * (last.rank() + 1)

    def f(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(hvd.allgather(x, process_set=last))
            loss += tf.reduce_sum(hvd.reducescatter(x, process_set=last))
            loss += tf.reduce_sum(hvd.allreduce(x, op=hvd.Product, process_set=last))
        return tape.gradient(loss, x)

    n = len(ranks_of(last))
    others = np.prod([r + 1 for r in range(n)]) / (last.rank() + 1)
    np.testing.assert_allclose(run(mode, f, x), [n + 1 / n + n * others] * 2)


@needs_xla
def test_in_a_compiled_function(last):
    if not last.included():
        return
    ranks, here = ranks_of(last), {"process_set": last}

    def f(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(hvd.allreduce(x, op=hvd.Sum, **here) * (last.rank() + 1.0))
        rows = tf.repeat(x, len(ranks), axis=0)
        results = [
            hvd.grouped_allreduce([x, 2 * x], **here),
            hvd.allreduce(x, op=hvd.Adasum, **here),
            hvd.allgather(x, **here),
            hvd.broadcast(x, ranks[-1], **here),
            hvd.reducescatter(rows, op=hvd.Max, **here),
            hvd.alltoall(rows, **here),
            tape.gradient(loss, x),
        ]
        hvd.barrier(**here)
        return results

    x = tf.constant([[1.0, 2.0], [3.0, 5.0]]) * (hvd.rank() + 1.0)
    expected = tf.nest.flatten(tf.function(f)(x))
    actual = tf.nest.flatten(tf.function(f, jit_compile=True)(x))
    for a, e in zip(actual, expected):
        assert a.dtype == e.dtype
        np.testing.assert_array_equal(a, e)


@pytest.mark.ranks(2, 4)
def test_sets_come_and_go():
    numbers = set()
    for step in range(5):
        process_set = hvd.add_process_set([step % hvd.size()])
        numbers.add(process_set.process_set_id)
        assert hvd.get_process_set_ids_and_ranks() == {
            0: list(range(hvd.size())),
            process_set.process_set_id: [step % hvd.size()],
        }
        if process_set.included():
            assert (process_set.rank(), process_set.size()) == (0, 1)
            assert hvd.allreduce(3.0, op=hvd.Sum, process_set=process_set) == 3.0
        else:
            assert process_set.rank() == -1
        assert hvd.remove_process_set(process_set)
        assert process_set.process_set_id is None
        assert not hvd.remove_process_set(process_set)
    assert len(numbers) == 5
    assert not hvd.remove_process_set(hvd.global_process_set)


@pytest.mark.ranks(2, 4)
def test_sets_that_are_gone_are_forgotten(monkeypatch):
    monkeypatch.setattr(_threads, "_by_name", _threads._ByName())
    monkeypatch.setattr(_threads._ByName, "FEW", 8)
    for _ in range(20):
        process_set = hvd.add_process_set([hvd.size() - 1])
        if process_set.included():
            hvd.allreduce(1.0, process_set=process_set)
        hvd.allreduce(1.0)
        assert hvd.remove_process_set(process_set)
        assert len(_threads._by_name) <= 8


@pytest.mark.ranks(2, 4)
def test_what_cannot_be_registered_fails_on_every_rank():
    with pytest.raises(InvalidSettingError, match=r"Received: a process set of ranks \[0, 99\]"):
        hvd.add_process_set([0, 99])
    with pytest.raises(InvalidSettingError, match="with number 0"):
        hvd.add_process_set(range(hvd.size()))
    with pytest.raises(
        InvalidSettingError, match=r"Mismatched ranks .* rank 0: \[0\]; rank 1: \[1"
    ):
        hvd.add_process_set([hvd.rank()])
    one = hvd.add_process_set([1])
    with pytest.raises(InvalidSettingError, match="with number"):
        hvd.add_process_set([1])
    assert hvd.remove_process_set(one)


@pytest.mark.ranks(2, 4)
def test_wrong_calls_are_refused_at_once(last):
    if last.included():
        outside = {"root_rank": 0, "process_set": last}
        with tf.Graph().as_default(), pytest.raises(ValueError, match="Received: root_rank=0"):
            hvd.broadcast(tf.compat.v1.placeholder(tf.float32, [2]), **outside)
        for mode in ("eager", "function"):
            with pytest.raises(ValueError, match=r"Received: root_rank=0. Expected: one of \["):
                run(mode, lambda: hvd.broadcast(1.0, **outside))
            with pytest.raises(ValueError, match=r"Received: root_rank=0. Expected: one of \["):
                run(mode, lambda: hvd.broadcast_([tf.Variable(1.0)], **outside))
    else:
        with pytest.raises(ValueError, match="This rank is not in the process set"):
            hvd.allreduce(1.0, process_set=last)
    with pytest.raises(ValueError, match="is not registered"):
        hvd.allreduce(1.0, process_set=hvd.ProcessSet([0]))
    with pytest.raises(TypeError, match=r"Expected: a hvd.ProcessSet"):
        hvd.allreduce(1.0, process_set=[0])
    for wrong in ([], [0, 0], [-1]):
        with pytest.raises(ValueError, match="names each of its ranks once"):
            hvd.ProcessSet(wrong)
    with pytest.raises(TypeError, match="Expected: whole numbers"):
        hvd.ProcessSet(["a"])


@pytest.mark.ranks(2, 4)
def test_init_registers_sets_and_shutdown_forgets_them():
    everyone_but_0 = hvd.ProcessSet(range(1, hvd.size()))
    hvd.shutdown()
    hvd.init(process_sets=[everyone_but_0, [0]])
    assert everyone_but_0.process_set_id == 1
    assert hvd.get_process_set_ids_and_ranks()[2] == [0]
    if everyone_but_0.included():
        assert hvd.allreduce(1.0, op=hvd.Sum, process_set=everyone_but_0) == hvd.size() - 1
    hvd.barrier()  # who leaves ends what others still do
    hvd.shutdown()
    assert everyone_but_0.process_set_id is None
    hvd.init(process_sets="dynamic")
    assert list(hvd.get_process_set_ids_and_ranks()) == [0]


@in_both_modes
def test_values_at_graph_time(mode, last):
    def f():
        return (
            hvd.rank_op(),
            hvd.local_rank_op(),
            hvd.size_op(),
            hvd.local_size_op(),
            hvd.size_op(last.process_set_id),
            hvd.process_set_included_op(last.process_set_id),
        )

    values = [int(value) for value in run(mode, f)]
    expected = [hvd.rank(), hvd.local_rank(), hvd.size(), hvd.local_size()]
    assert values == [*expected, last.size(), last.included()]
    with pytest.raises(tf.errors.InvalidArgumentError, match="Received: process set 99"):
        run(mode, lambda: hvd.size_op(99))


@pytest.mark.ranks(2, 4)
def test_sets_from_a_communicator():
    mpi = pytest.importorskip("mpi4py.MPI")
    half = hvd.add_process_set(mpi.COMM_WORLD.Split(hvd.rank() % 2, hvd.rank()))
    assert ranks_of(half) == list(range(hvd.rank() % 2, hvd.size(), 2))
    total = hvd.allreduce(float(hvd.rank()), op=hvd.Sum, process_set=half)
    assert total == sum(ranks_of(half))
    assert hvd.remove_process_set(half)
    assert list(hvd.get_process_set_ids_and_ranks()) == [0]
