"""Small gradients of a graph share an operation: which do, and that nothing else changes."""

import numpy as np
import pytest
import tensorflow as tf
from variants import first_of
from with_xla import needs_xla

import tfhvd as hvd
from tfhvd.gradients.buckets import ALONE_FROM, FULL_FROM, LAST, Part, divide

KIB = 1024


class TestDivide:
    def test_large_and_unknown_ones_stay_alone(self):
        parts = [Part(ALONE_FROM), Part(None), Part(ALONE_FROM + 1), Part(ALONE_FROM - 1)]
        assert sorted(divide(parts)) == [[0], [1], [2], [3]]

    def test_small_ones_are_together_across_large_ones(self):
        parts = [Part(4), Part(ALONE_FROM), Part(4), Part(ALONE_FROM), Part(4)]
        assert divide(parts) == [[3], [1], [4, 2, 0]]

    def test_a_bucket_that_is_full_is_closed(self):
        buckets = divide([Part(100 * KIB)] * 40)
        sizes = [100 * KIB * len(bucket) for bucket in buckets]
        assert all(FULL_FROM <= size < FULL_FROM + 100 * KIB for size in sizes[:-2])
        assert sizes[-1] <= LAST, "nothing is computed beside it"

    def test_kinds_are_not_mixed(self):
        parts = [Part(8, "f"), Part(4, "i"), Part(8, "f"), Part(4, "i")]
        assert sorted(divide(parts)) == [[2, 0], [3, 1]]

    @pytest.mark.parametrize("seed", range(20))
    def test_each_is_in_one_bucket_in_the_order_of_the_backward_pass(self, seed):
        numbers = np.random.default_rng(seed)
        sizes = (2 ** numbers.uniform(2, 22, numbers.integers(1, 200))).astype(int)
        parts = [Part(int(size), "fi"[numbers.integers(2)]) for size in sizes]
        buckets = divide(parts)
        assert sorted(i for bucket in buckets for i in bucket) == list(range(len(parts)))
        for bucket in buckets:
            assert bucket == sorted(bucket, reverse=True)
            assert len({parts[i].kind for i in bucket}) == 1
            assert sum(parts[i].size for i in bucket[:-1]) < FULL_FROM

    def test_nothing(self):
        assert divide([]) == []


def _operations(function: tf.types.experimental.PolymorphicFunction) -> list[list[str]]:
    """The types and dimensions of what each reduction of a function reduces, sorted."""
    operations = function.get_concrete_function().graph.get_operations()
    reductions = [o for o in operations if "llreduce" in o.type and o.type.startswith("Tfhvd")]
    return sorted([f"{t.dtype.name}{t.shape}" for t in o.outputs] for o in reductions)


def _variables() -> list[tf.Variable]:
    shapes = [(3,), (ALONE_FROM // 4,), (2, 2), (), (5,)]
    variables = [tf.Variable(tf.ones(shape)) for shape in shapes]
    return [*variables, tf.Variable(tf.ones([7], tf.float64)), tf.Variable(tf.ones([6, 2]))]


def _loss(variables: list[tf.Variable]) -> tf.Tensor:
    """Gives gradients that differ by rank: none for the one of (5,), rows for the last."""
    *dense, unused, double, table = variables
    del unused
    total = tf.add_n([tf.reduce_sum(v) * (i + 1.0) for i, v in enumerate(dense)])
    total += tf.cast(tf.reduce_sum(double), tf.float32) + tf.reduce_sum(tf.gather(table, [1, 3]))
    return total * (hvd.rank() + 1.0)


@pytest.mark.ranks(1, 2)
class TestGradients:
    @pytest.mark.parametrize("compression", [hvd.Compression.none, hvd.Compression.fp16])
    def test_graphs_give_what_eager_calls_give(self, compression):
        variables = _variables()

        def gradients():
            tape = hvd.DistributedGradientTape(tf.GradientTape(), compression=compression)
            with tape:
                loss = _loss(variables)
            found = tape.gradient(loss, variables)
            return [tf.constant(-1.0) if g is None else tf.convert_to_tensor(g) for g in found]

        compiled = tf.function(gradients)
        for _ in range(3):
            for eager, graph, variable in zip(gradients(), compiled(), variables):
                assert eager.dtype == variable.dtype
                np.testing.assert_array_equal(eager, graph)
        if hvd.size() > 1:
            small = "float16" if compression is hvd.Compression.fp16 else "float32"
            found = [types for types in _operations(compiled) if len(types) > 1]
            votes = [] if small == "float16" else ["float32(15,)"]  # else they travel by themselves
            assert found == [[f"{small}()", f"{small}(2, 2)", f"{small}(3,)", *votes]]

    def test_a_bucket_has_the_name_of_its_first_gradient(self):
        variables = [tf.Variable(tf.ones(2), name=name) for name in "abc"]

        @tf.function
        def step():
            with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
                loss = tf.add_n([tf.reduce_sum(v * v) for v in variables])
            return tape.gradient(loss, variables)

        operations = step.get_concrete_function().graph.get_operations()
        names = [o.get_attr("tensor_name").decode() for o in operations if "Allreduce" in o.type]
        expected = ["DistributedGradientTape/2.c"] if hvd.size() > 1 else []
        assert names == expected


@pytest.mark.ranks(2)
@pytest.mark.parametrize("at", first_of([20, 0, 39]))
@pytest.mark.parametrize("more", [1, 30 * KIB, ALONE_FROM])
def test_a_gradient_whose_shape_differs_is_an_error_on_every_rank(at, more):
    """Also where the ranks put it into other buckets."""
    shapes = [(KIB + more * hvd.rank() if i == at else KIB,) for i in range(40)]
    small = [tf.Variable(tf.ones(shape)) for shape in shapes]

    @tf.function
    def step():
        with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
            loss = tf.add_n([tf.reduce_sum(v) for v in small])
        return tape.gradient(loss, small)

    with pytest.raises(tf.errors.InvalidArgumentError, match=r"shapes|tensors in the group"):
        step()


@pytest.mark.ranks(2)
@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=needs_xla)])
def test_an_error_names_the_variable(jit_compile):
    shapes = {"query": (4,), "key": (5 + hvd.rank(),), "value": (6,)}
    variables = [tf.Variable(tf.ones(shape), name=name) for name, shape in shapes.items()]
    step = tf.function(lambda: _of_ranks(variables), jit_compile=jit_compile)
    with pytest.raises(tf.errors.OpError, match=r"tensor 1 of the group \(\S+/1\.key\)"):
        step()


def _of_ranks(variables: list[tf.Variable]) -> list[tf.Tensor]:
    with hvd.DistributedGradientTape(tf.GradientTape(), op=hvd.Sum) as tape:
        loss = tf.add_n([tf.reduce_sum(v) for v in variables]) * (hvd.rank() + 1.0)
    return tape.gradient(loss, variables)


@needs_xla
@pytest.mark.ranks(2)
def test_one_rank_compiles():
    variables = [tf.Variable(tf.ones(10 * KIB)) for _ in range(40)]
    function = tf.function(lambda: _of_ranks(variables), jit_compile=hvd.rank() == 0)
    for _ in range(3):
        for gradient in function():
            np.testing.assert_array_equal(gradient, np.full(10 * KIB, 3.0))


@pytest.mark.ranks(2)
def test_one_rank_traces_nothing():
    variables = [tf.Variable(tf.ones(10 * KIB)) for _ in range(40)]
    function = tf.function(lambda: _of_ranks(variables))
    with pytest.raises(tf.errors.InvalidArgumentError, match="numbers of tensors"):
        _of_ranks(variables) if hvd.rank() == 0 else function()
