"""Gradients that are not finite: whose they are is said; `quarantine` leaves the rank out."""

import itertools

import mpi
import numpy as np
import pytest
import tensorflow as tf
from flavours import keras_of
from variants import also
from with_xla import needs_xla

import tfhvd
import tfhvd.keras as hvd
from tfhvd.gradients.options import ReductionOptions
from tfhvd.gradients.reducer import GradientReducer

WAYS = {
    "eager": lambda step: step,
    "graph": tf.function,
    "compiled": lambda step: tf.function(step, jit_compile=True),
}
NUMBERS = itertools.count()
on_ranks = pytest.mark.ranks(2, 4)
in_every_way = pytest.mark.parametrize(
    "way", [also("eager"), "graph", also("compiled", marks=[needs_xla])]
)


class Loop:
    """Steps on two variables, whose gradients are the rank's number plus 1."""

    def __init__(self, way, **options):
        self.kernel = tf.Variable(tf.ones([3, 4]), name="kernel")
        self.bias = tf.Variable(tf.ones([4]), name="bias")
        self.name = f"loop.{next(NUMBERS)}"  # The engine counts the steps of a name.
        self._reduce = GradientReducer(ReductionOptions(name=self.name, **options))
        self._run = WAYS[way](self._step)

    def _step(self, kernel, bias):
        variables = [self.kernel, self.bias]
        return self._reduce([kernel, bias], variables)

    def step(self, bad=(), value=np.nan, variables=(0,)):
        """Reduces; the gradients of these variables are bad on these ranks."""
        gradients = [np.full(shape, hvd.rank() + 1, np.float32) for shape in ([3, 4], [4])]
        if hvd.rank() in bad:
            for number in variables:
                gradients[number].flat[2] = value
        return [g.numpy() for g in self._run(*map(tf.constant, gradients))]


def lines(capfd):
    return [line for line in capfd.readouterr().err.splitlines() if "not finite" in line]


def mean_of(those):
    return sum(rank + 1 for rank in those) / len(those)


@on_ranks
@in_every_way
@pytest.mark.parametrize("value", [np.nan, -np.inf], ids=str)
def test_the_rank_and_the_variable_are_named_once(way, value, capfd):
    loop = Loop(way)
    loop.step()
    assert lines(capfd) == []
    for _ in range(3):  # What follows from the first is not told.
        kernel, _ = loop.step(bad=[1], value=value)
        assert not np.isfinite(kernel).all()
    if hvd.rank() == 1:
        [line] = lines(capfd)
        counts = "4 NaN" if np.isnan(value) else "0 NaN and 1 infinite"
        counts = "1 NaN and 0 infinite" if np.isnan(value) else counts
        assert f"the gradient of kernel ({counts} of 12 values) is not finite on rank 1" in line
        assert f"in update 2 of {loop.name}. Look at this rank's batch." in line
        assert "quarantine=True" in line
    else:
        assert lines(capfd) == []
    loop.step()
    loop.step(bad=[0], variables=(0, 1))  # Another one is.
    expected = ["the gradient of bias (1 NaN and 0 infinite of 4 values) and 1 more are not finite"]
    assert [e for e in expected if e in "".join(lines(capfd))] == expected[: hvd.rank() == 0]


@on_ranks
@in_every_way
@pytest.mark.parametrize("op", [hvd.Average, hvd.Sum], ids=["average", "sum"])
def test_a_rank_in_quarantine_has_no_part_in_any_gradient_of_the_step(way, op, capfd):
    loop = Loop(way, quarantine=True, op=op)
    everybody = range(hvd.size())
    for bad in ([], [1], [0], [1], [0, 1], [*everybody], []):
        good = [rank for rank in everybody if rank not in bad]
        expected = mean_of(good) if good else 0.0
        expected *= len(good) if op == hvd.Sum else 1
        for gradient in loop.step(bad):
            np.testing.assert_allclose(gradient, np.full_like(gradient, expected), rtol=1e-6)
    said = lines(capfd)
    times = sum(hvd.rank() in bad for bad in ([1], [0], [1], [0, 1], everybody))
    assert len(said) == min(times, 3)
    assert all("The rank has no part in that update." in line for line in said)


@on_ranks
@in_every_way
def test_no_rank_is_named_where_the_gradients_of_all_are_bad_at_once(way, capfd):
    loop = Loop(way)
    for bad in ([], range(hvd.size()), range(hvd.size())):
        loop.step(bad)
    said = lines(capfd)
    assert len(said) == (hvd.rank() == 0)
    if said:
        place = f"in update 2 of {loop.name}, first that of kernel: the loss is not, or the weights"
        assert f"gradients of all ranks are not finite {place}" in said[0]


@pytest.mark.ranks(4)
@in_every_way
def test_of_all_ranks_of_a_process_set_its_first_one_says_so(way, capfd):
    process_set = hvd.add_process_set([2, 3])
    if not process_set.included():
        next(NUMBERS)  # The loops of later tests have equal names on all ranks.
    else:
        loop = Loop(way, process_set=process_set)
        loop.step([2, 3])
        assert ["gradients of all ranks" in line for line in lines(capfd)] == [True] * (
            hvd.rank() == 2
        )
        loop.step()
        loop.step([3])
        assert ["on rank 3 in update 3" in line for line in lines(capfd)] == [True] * (
            hvd.rank() == 3
        )
    hvd.remove_process_set(process_set)


@on_ranks
def test_of_a_large_gradient_every_value_is_looked_at(capfd):
    large = tf.Variable(tf.zeros([300_000]), name="large")
    value = np.ones(300_000, np.float32)
    if hvd.rank() == 0:
        value[200_000] = np.inf
    for quarantine in (False, True):
        options = ReductionOptions(name=f"large.{quarantine}", quarantine=quarantine)
        [reduced] = GradientReducer(options)([tf.constant(value)], [large])
        assert np.isfinite(reduced).all() == quarantine
    assert len(lines(capfd)) == 2 * (hvd.rank() == 0)


@on_ranks
def test_tensorflows_operations_find_the_same():
    """They look on GPUs."""
    from tfhvd.ops import finite_check

    for bad in ([], [1], [0, 2]):
        tensors = [tf.ones(3), tf.ones(2, tf.float64), tf.ones(4, tf.complex64)]
        for i in bad:
            tensors[i] *= tf.cast(np.nan, tensors[i].dtype)
        bucket = ([7, 2, 5], tensors)
        check = finite_check.FiniteCheck([bucket])
        found, vote = finite_check._look_by_tensorflow([bucket])
        np.testing.assert_array_equal(vote, check.vote)
        np.testing.assert_array_equal(found[:2], check._found[:2])


@on_ranks
@in_every_way
def test_finite_gradients_are_the_same_to_the_bit_with_and_without_quarantine(way):
    plain, careful = Loop(way), Loop(way, quarantine=True)
    for a, b in zip(plain.step(), careful.step()):
        np.testing.assert_array_equal(a, b)


@on_ranks
@in_every_way
@pytest.mark.parametrize(
    "more",
    [
        {"compression": hvd.Compression.fp16},
        {"groups": 2},
        {"gradient_predivide_factor": 2.0},
        {"compression": hvd.Compression.topk(0.5)},
    ],
    ids=["fp16", "groups", "predivide", "topk"],
)
def test_quarantine_goes_with_the_other_options(way, more):
    if way == "compiled" and "topk" in str(more):
        pytest.skip("no state in a compiled function")
    loop = Loop(way, quarantine=True, **more)
    good = [rank for rank in range(hvd.size()) if rank != 1]
    for gradient in loop.step(bad=[1]):
        np.testing.assert_allclose(gradient, np.full_like(gradient, mean_of(good)), rtol=1e-3)


@on_ranks
@pytest.mark.parametrize("way", [also("eager"), "graph"])
def test_slices_are_looked_at_and_left_out(way, capfd):
    table = tf.Variable(tf.zeros([6, 2]), name="table")
    reduce = GradientReducer(ReductionOptions(name=f"slices_{way}", quarantine=True))

    def step(values, indices):
        [reduced] = reduce([tf.IndexedSlices(values, indices, [6, 2])], [table])
        return tf.convert_to_tensor(reduced)

    run = WAYS[way](step)
    for bad in ([], [1], []):
        values = np.full([2, 2], hvd.rank() + 1, np.float32)
        if hvd.rank() in bad:
            values[1, 0] = np.inf
        good = [rank for rank in range(hvd.size()) if rank not in bad]
        dense = run(tf.constant(values), tf.constant([0, 4])).numpy()
        np.testing.assert_allclose(dense[4], np.full(2, mean_of(good)), rtol=1e-6)
    assert ["the gradient of table" in line for line in lines(capfd)] == [True] * (hvd.rank() == 1)


@on_ranks
@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float64, tf.complex64])
def test_gradients_of_every_type_are_looked_at(dtype, capfd):
    variable = tf.Variable(tf.zeros([5], dtype), name="of_type")
    reduce = GradientReducer(ReductionOptions(name=f"types_{dtype.name}"))
    bad = tf.constant([0, 0, 0, np.nan if hvd.rank() == 0 else 1, 0], tf.float32)
    tf.function(lambda g: reduce([g], [variable]))(tf.cast(bad, dtype))
    assert len(lines(capfd)) == (hvd.rank() == 0)


@on_ranks
def test_samples_weigh_the_ranks_that_are_left():
    from tfhvd.gradients import sample_weights

    loop = Loop("eager", quarantine=True)
    with sample_weights.StepOf(hvd.rank() + 1):
        kernel, _ = loop.step(bad=[0])
    good = range(1, hvd.size())
    expected = sum((r + 1) ** 2 for r in good) / sum(r + 1 for r in good)
    np.testing.assert_allclose(kernel, np.full_like(kernel, expected), rtol=1e-6)


@on_ranks
@pytest.mark.parametrize("package", ["keras", also("tf_keras")])
def test_fit_says_the_epoch_and_goes_on_in_quarantine(package, capfd):
    keras = keras_of(package)
    model = keras.Sequential([keras.layers.Input([3]), keras.layers.Dense(2)])
    optimizer = hvd.DistributedOptimizer(
        keras.optimizers.Adam(0.01), name=f"fit.{package}", quarantine=True
    )
    model.compile(optimizer, "mse")
    x = np.ones([12, 3], np.float32)
    if hvd.rank() == 1:
        x[5, 1] = np.nan  # in the third step
    y = np.ones([12, 2], np.float32)
    begin = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
    model.fit(x, y, batch_size=2, shuffle=False, epochs=2, verbose=0, callbacks=begin)
    said = lines(capfd)
    assert len(said) == (2 if hvd.rank() == 1 else 0)
    if said:
        assert "of epoch 1" in said[0]
        assert "of epoch 2" in said[1]
    assert all(np.isfinite(weights).all() for weights in model.get_weights())
    assert all(np.isfinite(np.asarray(v)).all() for v in model.optimizer.variables)
    assert tfhvd.check_divergence(model.trainable_variables) == []


@on_ranks
def test_a_session_looks_too(capfd):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variable = tf.compat.v1.get_variable("w", [4])
        optimizer = tfhvd.DistributedOptimizer(
            tf.compat.v1.train.GradientDescentOptimizer(1.0), name="session"
        )
        factor = tf.compat.v1.placeholder(tf.float32, [])
        train = optimizer.minimize(tf.reduce_sum(variable) * factor, var_list=[variable])
        session.run(tf.compat.v1.global_variables_initializer())
        session.run(train, {factor: 1.0})
        session.run(train, {factor: np.nan if hvd.rank() == 1 else 1.0})
    assert ["rank 1 in update 2 of" in line for line in lines(capfd)] == [True] * (hvd.rank() == 1)


@on_ranks
@pytest.mark.parametrize("kind", ["keras", "tf_keras", "legacy"])
def test_a_loss_scale_that_skips_an_update_is_no_news(capfd, kind):
    keras = keras_of("keras" if kind == "keras" else "tf_keras")
    holder = keras.optimizers if kind == "keras" else keras.mixed_precision
    optimizers = keras.optimizers.legacy if kind == "legacy" else keras.optimizers
    optimizer = holder.LossScaleOptimizer(
        hvd.DistributedOptimizer(optimizers.SGD(1.0)), initial_scale=2.0**15
    )
    model = keras.Sequential([keras.layers.Dense(1, use_bias=False)])
    model.compile(optimizer, "mse", jit_compile=False)
    x = np.full([2, 1], 1e36 if hvd.rank() == 1 else 1.0, np.float32)
    model.fit(x, x, batch_size=2, verbose=0)
    assert lines(capfd) == []
    assert np.isfinite(model.get_weights()[0]).all()


def test_only_averages_and_sums_have_a_quarantine():
    with pytest.raises(
        ValueError, match=r"Received: quarantine=True, op=Adasum. Expected: Average"
    ):
        hvd.DistributedGradientTape(tf.GradientTape(), op=hvd.Adasum, quarantine=True)


PROGRAM = """
import os, sys
import numpy as np
import tensorflow as tf
import tfhvd.keras as hvd

hvd.init()
variables = [tf.Variable(tf.ones([3]), name="kernel")]
optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(1.0))
optimizer.build(variables)

@tf.function(jit_compile=sys.argv[1] == "compiled")
def step(gradient):
    optimizer.apply_gradients([(gradient, variables[0])])

step(tf.ones([3]))
graph = step.get_concrete_function(tf.ones([3])).graph
print("operations:", [o.type for o in graph.get_operations() if "NotFinite" in o.type])
try:
    step(tf.constant([1.0, np.nan if hvd.rank() == 1 else 1.0, 1.0]))
except tf.errors.InvalidArgumentError as error:
    print(f"raised on {hvd.rank()}:", error.message.replace(chr(10), " "))
print(f"weights on {hvd.rank()}:", variables[0].numpy().tolist())
"""


def run(way, tmp_path, setting):
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    job = mpi.run_ranks(2, [str(file), way], env={"TFHVD_ON_NOT_FINITE": setting})
    assert job.code == 0, job
    return "".join(rank.out + rank.err for rank in job.ranks)


@pytest.mark.thorough
@pytest.mark.variant
@pytest.mark.parametrize("way", ["graph", also("compiled", marks=[needs_xla])])
def test_raise_is_an_error_on_all_ranks_and_updates_nothing(way, tmp_path):
    out = run(way, tmp_path, "raise")
    for rank in range(2):
        assert f"raised on {rank}:" in out
        assert f"weights on {rank}: [0.0, 0.0, 0.0]" in out
    assert out.count("Gradients of rank 1, first that of kernel, are not finite in update 2") == 2


@pytest.mark.thorough
@pytest.mark.variant
def test_off_looks_at_nothing(tmp_path):
    out = run("graph", tmp_path, "off")
    assert out.count("operations: []") == 2
    assert "raised" not in out
    assert "nan" in out
