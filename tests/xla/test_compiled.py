"""Collectives in functions with jit_compile=True."""

import collections
import gc
import json
import random
from collections import defaultdict

import numpy as np
import pytest
import ranks
import tensorflow as tf

import tfhvd as hvd
from tfhvd.runtime import native

pytestmark = pytest.mark.ranks(1, 2)

if ranks.is_worker():  # A rank that waits has no other thread, so that nothing goes on beside it.
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.threading.set_intra_op_parallelism_threads(1)

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
    run = compiled(function)
    for _ in range(2):
        actual = tf.nest.flatten(run(*arguments))
        for a, e in zip(actual, expected):
            assert a.dtype == e.dtype
            np.testing.assert_array_equal(tf.cast(a, tf.float64), tf.cast(e, tf.float64))


@pytest.mark.parametrize("dtype", NUMBERS, ids=lambda d: d.name)
def test_every_type_and_reduction(dtype):
    def f(x):
        ops = (hvd.Average, hvd.Sum, hvd.Min, hvd.Max, hvd.Product)
        return [hvd.allreduce(x, op=op, name=f"types.{op}") for op in ops]

    same_as_uncompiled(f, of_rank(dtype))


def test_integers_of_other_widths_and_complex_numbers():
    types = (tf.int16, tf.uint16, tf.uint32, tf.uint64, tf.complex64, tf.complex128)

    def f(*tensors):
        names = [f"others.{x.dtype.name}" for x in tensors]
        return [
            *(hvd.allreduce(x, op=hvd.Sum, name=f"{n}.sum") for x, n in zip(tensors, names)),
            *(hvd.alltoall(x, name=f"{n}.all") for x, n in zip(tensors, names)),
            *(hvd.broadcast(x, 0, name=f"{n}.root") for x, n in zip(tensors, names)),
            *hvd.grouped_allgather(tensors, name="others"),
        ]

    tensors = [of_rank(dtype) for dtype in types]
    expected = tf.function(f)(*tensors)
    for actual, wanted in zip(compiled(f)(*tensors), expected):
        assert actual.dtype == wanted.dtype
        np.testing.assert_array_equal(actual, wanted)


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
            hvd.grouped_reducescatter([rows, 2 * rows], op=hvd.Sum, name="both.scattered"),
            hvd.alltoall(rows, name="exchanged"),
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


def test_adasum():
    def f(x):
        return hvd.allreduce(x, op=hvd.Adasum, name="adasum")

    x = of_rank(tf.float32) + tf.range(4.0)
    same_as_uncompiled(f, x)
    expected = tf.function(gradient_of(f))(x)
    np.testing.assert_allclose(compiled(gradient_of(f))(x), expected, rtol=1e-6)


def gradient_of(function):
    """The gradient, by x, of what a function gives; its elements count differently on each rank."""

    def f(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            losses = [
                tf.reduce_sum(y * tf.cast(tf.range(1, 1 + tf.size(y)), y.dtype) * (hvd.rank() + 1))
                for y in (tf.reshape(y, [-1]) for y in tf.nest.flatten(function(x)))
            ]
            loss = tf.add_n(losses)
        return tape.gradient(loss, x)

    return f


def reductions(x):
    ops = (hvd.Average, hvd.Sum, hvd.Min, hvd.Max, hvd.Product)
    scales = {"prescale_factor": 0.5, "postscale_factor": 4.0}
    return [
        [hvd.allreduce(x, op=op, name=f"g.{op}") for op in ops],
        [hvd.allreduce(x, op=op, name=f"g.scaled.{op}", **scales) for op in ops],
        [hvd.grouped_allreduce([x, x * x], op=op, name=f"g.group.{op}") for op in ops],
        [hvd.reducescatter(x, op=op, name=f"g.part.{op}") for op in ops],
    ]


def movements(x):
    return [
        hvd.broadcast(x * x, hvd.size() - 1, name="g.root"),
        hvd.allgather(x, name="g.rows"),
        hvd.grouped_allgather([x, x * x], name="g.both"),
        hvd.alltoall(x, name="g.exchanged"),
    ]


@pytest.mark.parametrize("function", [reductions, movements], ids=lambda f: f.__name__)
def test_gradients(function):
    same_as_uncompiled(gradient_of(function), of_rank(tf.float32) * [1.0, -1.0, 1.0, 0.5])


def test_one_of_a_group_without_a_gradient():
    def f(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = hvd.grouped_allreduce([x, 2 * x], op=hvd.Max, name="half.used")[0]
        return tape.gradient(y, x)

    same_as_uncompiled(f, of_rank(tf.float32))


@pytest.mark.thorough
def test_other_orders_on_each_rank_with_one_thread_to_run_them():
    # A rank that waited for one before it had begun all others would wait forever.
    count = 50
    assert tf.config.threading.get_inter_op_parallelism_threads() == 1
    assert tf.config.threading.get_intra_op_parallelism_threads() == 1

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
        return gradient_of(reductions)(x), gradient_of(movements)(x)

    x = of_rank(tf.float32)
    expected = tf.nest.flatten(tf.function(f)(x))
    mixed = tf.function(f, jit_compile=hvd.rank() == 0)
    for actual, e in zip(tf.nest.flatten(mixed(x)), expected):
        np.testing.assert_array_equal(actual, e)


def test_loops_and_branches():
    @compiled
    def f(x):
        for _ in tf.range(4):
            x = hvd.allreduce(x + 1, name="in.loop")
        if tf.reduce_sum(x) > 3:
            x = hvd.allreduce(x * 2, op=hvd.Max, name="in.branch")
        return x

    assert f(tf.constant(0.0)) == 8.0


def test_one_name_several_times():
    """As of a function that gives what it calls a name, and is called more than once."""

    def summed(x):
        return hvd.allreduce(x, op=hvd.Sum, name="fixed")

    called = tf.function(summed)
    unnamed = tf.function(lambda x: hvd.allreduce(x, op=hvd.Sum))

    @compiled
    def f(x):
        found = [summed(x), summed(2 * x), called(3 * x), called(4 * x), summed(5 * x)]
        looped = x
        for _ in tf.range(2):
            looped = summed(looped)
        return [*found, summed(6 * x), looped, unnamed(8 * x), unnamed(9 * x)]

    n = hvd.size()
    for _ in range(2):
        found = [float(y) / n for y in f(tf.constant(1.0))]
        assert found == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, n, 8.0, 9.0]


def in_own_order(results):
    """What functions give that are called in another order on each rank, by name."""
    names = random.Random(hvd.rank()).sample(list(results), len(results))
    return {name: results[name]() for name in names}


@pytest.mark.thorough
def test_a_function_that_was_traced_uncompiled_and_is_called_by_a_compiled_one():
    @tf.function
    def inner(x):
        def reduce(i):
            return hvd.allreduce(tf.sin(x * i), op=hvd.Sum, name=f"inner.{i}")

        found = in_own_order({i: lambda i=i: reduce(i) for i in range(20)})
        return [found[i] for i in range(20)]

    for function in (inner, compiled(lambda x: inner(x))):
        for i, result in enumerate(function(tf.ones([10]))):
            np.testing.assert_allclose(result, np.sin(np.full(10, i)) * hvd.size(), atol=1e-5)


@pytest.mark.thorough
def test_a_trace_with_collectives_is_of_one_compiled_function():
    """Also where another compiled function, at the same address, is gone."""
    traced, called = collections.Counter(), collections.Counter()

    def traces(name):
        @tf.function
        def function(x):
            traced[name] += 1
            return hvd.allreduce(x, op=hvd.Sum, name=name)

        return function

    functions = {name: traces(name) for name in "abcde"}
    draw = random.Random(1)
    for number in range(60):
        name = draw.choice("abcde")
        called[name] += 1
        compiled(lambda x, function=functions[name]: function(x))(tf.ones([4]))
        if number % 7 == 0:
            gc.collect()
    assert traced == called


@pytest.mark.thorough
def test_a_function_without_collectives_is_traced_once():
    traced = []

    def traces(name, body):
        @tf.function
        def function(x):
            traced.append(name)
            return body(x)

        return function

    @tf.custom_gradient
    def reduced_on_the_way_back(x):
        return x * 2, lambda g: hvd.allreduce(g * 2, op=hvd.Sum, name="on.the.way.back")

    plain = traces("plain", tf.sin)
    callee = traces("caller of plain", lambda x: plain(x) + 1)
    reduces = traces("reduces", lambda x: hvd.allreduce(x, op=hvd.Sum, name="nested"))
    calls_it = traces("calls it", lambda x: reduces(x) + 1)
    may_reduce = traces("may reduce", reduced_on_the_way_back)
    functions = [plain, callee, reduces, calls_it, may_reduce]
    x = tf.ones([4])
    for wrap in (compiled, compiled, lambda function: function):
        for function in functions:
            wrap(lambda x, function=function: function(x))(x)
    counts = collections.Counter(traced)
    assert (counts["plain"], counts["caller of plain"]) == (1, 1)
    assert min(counts["reduces"], counts["calls it"], counts["may reduce"]) >= 3
    np.testing.assert_allclose(callee(x), np.sin(np.ones(4)) + 1, rtol=1e-6)
    np.testing.assert_allclose(compiled(lambda x: calls_it(x))(x), np.full(4, hvd.size() + 1.0))


@pytest.mark.thorough
@pytest.mark.parametrize("compiles", ["every rank", "the first rank"])
def test_a_loop_a_branch_a_call_and_a_barrier_among_others(compiles):
    @tf.function
    def called(x):
        return hvd.allreduce(x, op=hvd.Sum, name="called") + 1

    @tf.function
    def called_too(x):
        return hvd.allreduce(x, op=hvd.Sum, name="called.too") + 1

    def f(x):
        def looped():
            y = x
            for _ in tf.range(3):
                y = hvd.allreduce(y + 1, name="in.loop")
                y += hvd.allreduce(x, name="in.loop.too")
            return y

        def branched():
            return hvd.allreduce(x * 2, op=hvd.Max, name="in.branch") if x > 0 else x

        def others(i):
            return hvd.allreduce(x * i, op=hvd.Sum, name=f"other.{i}")

        # What TensorFlow itself runs in order is called in one: the loop, branch, call and barrier.
        whole = [looped, branched, lambda: called(x), hvd.barrier, lambda: called_too(x + 1)]
        results = {i: lambda i=i: others(i) for i in range(5)}
        found = {}
        for i, one in enumerate(whole):
            early = {i: results[i]} if hvd.rank() == 0 else {}
            found.update(in_own_order(early))
            found[f"whole.{i}"] = one()
        found.update(in_own_order({i: r for i, r in results.items() if i not in found}))
        return [found[i] for i in range(5)], [found[f"whole.{i}"] for i in (0, 1, 2, 4)]

    function = tf.function(f, jit_compile=compiles == "every rank" or hvd.rank() == 0)
    n = hvd.size()
    for _ in range(2):
        single, whole = function(tf.constant(1.0))
        assert [float(y) for y in single] == [float(n * i) for i in range(5)]
        assert [float(y) for y in whole] == [7.0, 2.0, n + 1.0, 2.0 * n + 1]


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


def gradients_of(weights, between=0):
    """A step of a network with a layer for each of the weights, compiled.

    Behind the first layer come as many products more, with what nobody trains.
    """
    constant = tf.ones(weights[0].shape) / weights[0].shape[0]

    @compiled
    def f(x):
        with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
            y = x
            for number, w in enumerate(weights):
                y = tf.nn.relu(y @ w)
                for _ in range(between if number == 0 else 0):
                    y = tf.nn.relu(y @ constant)
            loss = tf.reduce_sum(y)
        return tape.gradient(loss, weights)

    return f


@pytest.mark.thorough
def test_gradients_set_off_during_the_backward_pass():
    layers = 6
    # Each large enough not to share an operation with others.
    f = gradients_of([tf.Variable(tf.ones([512, 512])) for _ in range(layers)])
    schedule = f.experimental_get_compiler_ir(tf.ones([32, 512]))("optimized_hlo")
    lines = schedule[schedule.index("ENTRY ") :].splitlines()
    order = "".join(
        "S" * ('"tfhvd_start"' in line) + "D" * ('"tfhvd_done"' in line) + "p" * (" dot(" in line)
        for line in lines
    )
    assert order.count("S") == (layers if hvd.size() > 1 else 0)
    if hvd.size() > 1:
        assert order.count("D") == 1 and order.endswith("D")
        # All layers forwards, then two products for each backwards, and what it gives on its way,
        # once it has been looked at.
        assert order.index("S") <= layers + 4
        assert order.rindex("p") > order.index("S") + layers


def phases_of(path):
    """The times at which the phases of each row of a timeline began and ended, by row and name."""
    rows, times, under_way = {}, defaultdict(list), defaultdict(list)
    for event in json.loads(path.read_text(encoding="utf-8")):
        lane = (event["pid"], event["tid"])
        if event["ph"] == "M":
            rows[event["pid"]] = event["args"]["name"]
        elif event["ph"] == "B":
            under_way[lane].append(event["name"])
            times[rows[event["pid"]], event["name"]].append(event["ts"])
        elif event["ph"] == "E":
            name = "/" + under_way[lane].pop()
            times[rows[event["pid"]], name].append(event["ts"])
    return times


@pytest.mark.ranks(2)
@pytest.mark.thorough
def test_the_first_gradient_is_being_reduced_before_the_last_one_is_computed(tmp_path):
    """What the engine did, in its order, as its timeline has it.

    The gradient of the last layer, which comes first, is large enough for a bucket of its own once
    the step is locked: what shares a bucket is reduced together. Between the two lies many times
    what the ranks need to agree, so that on the rank which comes last its reduction begins before
    the other is handed over: in every step, but for those in which its engine gets no processor
    meanwhile, as where other programs want more of them than there are. Were the gradients handed
    over once the backward pass is over, it would in none, but for the odd one in which that rank
    loses its processor on the way. How long the reduction takes is another matter: both ranks
    compute on every processor.
    """
    layers, steps = 3, 10
    widths = [256, 256, 8192]  # 8 MiB: the size that closes a bucket
    weights = [tf.Variable(tf.ones([256, width]) / 256) for width in widths]
    f = gradients_of(weights, between=100)
    f(tf.ones([256, 256]))  # compiles
    hvd.start_timeline(f"{tmp_path}/{{rank}}.json")
    hvd.barrier()  # rank 0 records when the other announces
    for _ in range(steps):
        f(tf.ones([256, 256]))
    hvd.stop_timeline()
    times = phases_of(tmp_path / f"{hvd.rank()}.json")
    [first] = [t for (row, n), t in times.items() if f"/{layers - 1}." in row and n == "ALLREDUCE"]
    # The other two share an operation, which has the name of the first of them.
    [last] = [t for (row, n), t in times.items() if "/1." in row and n == "NEGOTIATE_ALLREDUCE"]
    assert len(first) == len(last) == steps
    own = [begun < handed_over for begun, handed_over in zip(first, last)]
    of_ranks = hvd.allgather([own], name="in time").numpy()
    assert of_ranks.any(axis=0).sum() > steps / 2, of_ranks


@pytest.mark.ranks(2)
def test_sparse_gradients_where_one_rank_compiles():
    """The rows of the other have no fixed number: an error on both, unless all are dense."""
    table = tf.Variable(tf.ones([5, 3]))

    def gradient(x, sparse_as_dense):
        with hvd.DistributedGradientTape(
            tf.GradientTape(), op=hvd.Sum, sparse_as_dense=sparse_as_dense
        ) as tape:
            y = x * tf.gather(table, [1, 3, 1])
        return tf.convert_to_tensor(tape.gradient(y, table))

    f = tf.function(gradient, jit_compile=hvd.rank() == 0)
    x = tf.constant(1.0 + hvd.rank())
    for _ in range(2):
        with pytest.raises(tf.errors.InvalidArgumentError, match="pass sparse_as_dense=True"):
            f(x, False)
        hvd.barrier()
        np.testing.assert_array_equal(f(x, True)[:, 0], [0.0, 6.0, 0.0, 3.0, 0.0])


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


@pytest.mark.ranks(1)
def test_a_build_without_xla_says_so(monkeypatch):
    without = [(version, False, file) for version, _, file in native.build_config().OPS]
    monkeypatch.setattr(native.build_config(), "OPS", without)
    with pytest.raises(
        NotImplementedError,
        match=r"built with TensorFlow 2\..*install TensorFlow 2\.20 or newer and type: ",
    ):
        tf.function(hvd.allreduce, jit_compile=True)(tf.constant(1.0))
    assert float(tf.function(hvd.allreduce)(tf.constant(3.0))) == 3.0
