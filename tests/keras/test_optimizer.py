"""A wrapped optimizer updates as the plain one does that is given the reduced gradients."""

import copy
import pickle

import numpy as np
import pytest
import tensorflow as tf
from flavours import (
    assert_close,
    assert_same_on_all_ranks,
    data,
    in_both_keras,
    keras_of,
    make_model,
    own_gradients,
    summed,
    values,
)
from variants import also, first_of
from with_xla import needs_xla

import tfhvd.gradients.reducer
import tfhvd.keras as hvd

pytestmark = pytest.mark.ranks(2, 4)


def averaged(gradients):
    return [g / tf.cast(hvd.size(), g.dtype) for g in summed(gradients)]


def follow(keras, make_optimizer, steps=3, **arguments):
    """Trains with a wrapped optimizer, and beside it with a plain one on reduced gradients."""
    model, twin = make_model(keras), make_model(keras)
    optimizer, plain = hvd.DistributedOptimizer(make_optimizer(), **arguments), make_optimizer()

    @tf.function
    def step(x, y):
        optimizer.apply_gradients(pairs(model, x, y))

    for number in range(steps):
        x, y = data(seed=10 * number + hvd.rank())
        gradients = averaged(own_gradients(twin, x, y))
        plain.apply_gradients(zip(gradients, twin.trainable_variables))
        step(x, y)
    assert_close(model.trainable_variables, twin.trainable_variables)
    assert_same_on_all_ranks(model.trainable_variables)


def pairs(model, x, y):
    return zip(own_gradients(model, x, y), model.trainable_variables)


BOTH = {
    "momentum": lambda o: o.SGD(0.05, momentum=0.9, nesterov=True),
    "global_clipnorm": lambda o: o.SGD(0.5, global_clipnorm=0.1),
    "ema": lambda o: o.SGD(0.05, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=2),
    "weight_decay": lambda o: o.AdamW(0.01, weight_decay=0.1),
}
KERAS_3 = {
    "clipnorm": lambda o: o.SGD(0.5, clipnorm=0.1),
    "clipvalue": lambda o: o.SGD(0.5, clipvalue=0.02),
    "rmsprop": lambda o: o.RMSprop(0.01, momentum=0.5),
    "nadam": lambda o: o.Nadam(0.01),
    "loss_scale_factor": lambda o: o.SGD(0.05, loss_scale_factor=1.0, clipnorm=0.1),
    "accumulation": lambda o: o.SGD(0.05, gradient_accumulation_steps=2, global_clipnorm=0.1),
    "several": lambda o: o.MultiOptimizer(o.OptimizerMap(o.SGD(0.05), {".*bias": o.Adam(0.01)})),
}


@pytest.mark.parametrize("kind", [*first_of(BOTH), *first_of(KERAS_3, 2)])
def test_follows_the_optimizer_of_keras_3(kind):
    keras = keras_of("keras")
    if not hasattr(keras.optimizers, "MultiOptimizer") and kind == "several":
        pytest.skip("this Keras has no MultiOptimizer")
    follow(keras, lambda: {**BOTH, **KERAS_3}[kind](keras.optimizers))


@pytest.mark.parametrize("kind", list(map(also, BOTH)))
def test_follows_the_optimizer_of_tf_keras(kind):
    keras = keras_of("tf_keras")
    follow(keras, lambda: BOTH[kind](keras.optimizers))


@pytest.mark.parametrize("kind", ["SGD", "Adam"])
def test_follows_the_legacy_optimizer(kind):
    keras = keras_of("tf_keras")
    follow(keras, lambda: getattr(keras.optimizers.legacy, kind)(0.01, clipnorm=0.1))


@pytest.mark.parametrize(
    "arguments",
    [
        {"groups": 2},
        {"num_groups": 9},
        {"gradient_predivide_factor": 4.0},
        {"name": "mine"},
        {"device_dense": "/CPU:0"},
    ],
    ids=str,
)
def test_arguments_that_change_no_number(arguments):
    keras = keras_of("keras")
    follow(keras, lambda: keras.optimizers.SGD(0.05), steps=2, **arguments)


def test_groups_of_variables():
    keras = keras_of("keras")
    model, twin = make_model(keras), make_model(keras)
    kernels = [v for v in model.trainable_variables if v.name == "kernel"]
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.05), groups=[kernels])
    x, y = data(seed=hvd.rank())
    keras.optimizers.SGD(0.05).apply_gradients(
        zip(averaged(own_gradients(twin, x, y)), twin.trainable_variables)
    )
    optimizer.apply_gradients(pairs(model, x, y))
    assert_close(model.trainable_variables, twin.trainable_variables)


@pytest.mark.ranks(1, 2)
@pytest.mark.parametrize("compression", ["fp16", "bf16"])
def test_compression_rounds_what_travels(compression):
    keras = keras_of("keras")
    variable = keras.Variable([0.0, 0.0])
    optimizer = hvd.DistributedOptimizer(
        keras.optimizers.SGD(1.0), compression=getattr(hvd.Compression, compression)
    )
    fine = 1.0 + 2.0**-12  # rounded to 1 in 16 bits
    optimizer.apply_gradients([(tf.constant([fine, 0.5]), variable)])
    assert float(variable[0]) == (-1.0 if hvd.size() > 1 else -fine)
    assert float(variable[1]) == -0.5


@pytest.mark.ranks(1, 2)
def test_accumulation_reduces_once_per_update(monkeypatch):
    """Of four calls, two update; the eager calls are counted."""
    calls = []
    reduce = tfhvd.gradients.reducer.grouped_allreduce

    def counted(*args, **kwargs):
        calls.append(args)
        return reduce(*args, **kwargs)

    monkeypatch.setattr(tfhvd.gradients.reducer, "grouped_allreduce", counted)
    keras = keras_of("keras")
    model = make_model(keras)
    plain = keras.optimizers.SGD(0.05, gradient_accumulation_steps=2)
    optimizer = hvd.DistributedOptimizer(plain)
    before = values(model.trainable_variables)
    for number in range(4):
        x, y = data(seed=10 * number + hvd.rank())
        optimizer.apply_gradients(pairs(model, x, y))
        assert len(calls) == ((number + 1) // 2 if hvd.size() > 1 else 0)
        changed = [not np.array_equal(a, b) for a, b in zip(before, values(model.weights))]
        assert changed == [number > 0] * len(changed)


@pytest.mark.ranks(1, 2)
@pytest.mark.parametrize("average", [False, True])
def test_backward_passes_per_step(average):
    keras = keras_of("keras")
    variable = keras.Variable([1.0])
    optimizer = hvd.DistributedOptimizer(
        keras.optimizers.SGD(0.5), backward_passes_per_step=2, average_aggregated_gradients=average
    )
    for _ in range(2):
        optimizer.apply_gradients([(tf.constant([1.0 + hvd.rank()]), variable)])
    mean = np.mean([1.0 + rank for rank in range(hvd.size())])
    assert float(variable[0]) == 1.0 - 0.5 * mean * (1 if average else 2)


@in_both_keras
def test_frozen_and_unused_variables(package):
    keras = keras_of(package)
    model = make_model(keras)
    model.layers[0].trainable = False
    frozen = values(model.layers[0].weights)
    unused = tf.Variable([1.0]) if package == "tf_keras" else keras.Variable([1.0])
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))
    x, y = data(seed=hvd.rank())
    optimizer.apply_gradients([*pairs(model, x, y), (None, unused)])
    assert_close(model.layers[0].weights, frozen)
    assert float(unused[0]) == 1.0
    assert_same_on_all_ranks(model.weights)


@pytest.mark.ranks(1, 2)
@in_both_keras
@pytest.mark.parametrize("sparse_as_dense", [False, True])
def test_indexed_slices(package, sparse_as_dense):
    """Rows with several gradients, of one rank or of several, count as their sum."""
    keras = keras_of(package)
    table = np.ones((6, 2), "float32")
    variable, twin = tf.Variable(table), tf.Variable(table)
    rows = tf.constant([0, 1, 1, 2 + hvd.rank() % 2])
    optimizer = hvd.DistributedOptimizer(
        keras.optimizers.Adam(0.1), sparse_as_dense=sparse_as_dense
    )
    plain = keras.optimizers.Adam(0.1)
    for _ in range(2):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(tf.gather(variable, rows)))
        gradient = tape.gradient(loss, variable)
        assert isinstance(gradient, tf.IndexedSlices)
        [whole] = averaged([tf.convert_to_tensor(gradient)])
        optimizer.apply_gradients([(gradient, variable)])
        plain.apply_gradients([(whole, twin)])
    # Adam of Keras 3 moves rows without a gradient as well; tf_keras' does not when it is sparse.
    np.testing.assert_allclose(variable[:3], twin[:3], rtol=1e-5)
    assert_same_on_all_ranks([variable])


@pytest.mark.ranks(1, 2)
@in_both_keras
@pytest.mark.parametrize("order", ["inside", "outside"])
def test_loss_scale_skips_on_all_ranks_or_none(package, order):
    keras = keras_of(package)
    scaled = keras.mixed_precision.LossScaleOptimizer
    plain = keras.optimizers.SGD(1.0)
    if order == "inside":
        optimizer = scaled(hvd.DistributedOptimizer(plain), initial_scale=4.0)
    else:
        optimizer = hvd.DistributedOptimizer(scaled(plain, initial_scale=4.0))
    assert isinstance(optimizer, scaled)
    start = np.float32([1.0, 1.0])
    variable = keras.Variable(start) if package == "keras" else tf.Variable(start)
    unscale = 4.0 if package == "keras" else 1.0  # tf_keras leaves that to its user

    @tf.function
    def step(bad):
        value = tf.where(bad & (hvd.rank() == hvd.size() - 1), np.inf, 1.0 + hvd.rank())
        gradient = tf.cast([unscale * value, unscale], tf.float32)
        optimizer.apply_gradients([(gradient, variable)])

    step(tf.constant(True))
    np.testing.assert_array_equal(variable, [1.0, 1.0])
    scale = optimizer.dynamic_scale if package == "keras" else optimizer.loss_scale
    assert float(scale) == 2.0
    if package == "keras":
        optimizer.dynamic_scale.assign(4.0)
    step(tf.constant(False))
    mean = np.mean([1.0 + rank for rank in range(hvd.size())])
    np.testing.assert_allclose(variable, [1.0 - mean, 0.0], atol=1e-6)
    assert_same_on_all_ranks([variable])


@pytest.mark.ranks(1, 2)
def test_mixed_precision_in_fit():
    keras = keras_of("keras")
    keras.mixed_precision.set_dtype_policy("mixed_float16")
    try:
        model = make_model(keras)
        x, y = data(seed=hvd.rank())
        model.compile(
            hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), keras.losses.MeanSquaredError()
        )
        before = values(model.trainable_variables)
        model.fit(x, y, batch_size=4, epochs=2, verbose=0)
    finally:
        keras.mixed_precision.set_dtype_policy("float32")
    assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
    assert not np.array_equal(before[0], values(model.trainable_variables)[0])
    assert_same_on_all_ranks(model.trainable_variables)


@needs_xla
@in_both_keras
def test_fit_compiled(package, caplog):
    keras = keras_of(package)
    model = make_model(keras)
    x, y = data(seed=hvd.rank())
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))
    model.compile(optimizer, keras.losses.MeanSquaredError(), jit_compile=True)
    model.fit(x, y, verbose=0)
    assert model.jit_compile is True
    assert_same_on_all_ranks(model.weights)
    assert not [r for r in caplog.records if "jit_compile" in r.getMessage()]


@pytest.mark.ranks(1)
class TestWrapping:
    """One state, seen through two objects."""

    @in_both_keras
    @pytest.mark.parametrize("kind", ["SGD", "Adam", "RMSprop"])
    def test_is_a_subclass(self, package, kind):
        cls = getattr(keras_of(package).optimizers, kind)
        plain = cls(0.25)
        optimizer = hvd.DistributedOptimizer(plain)
        assert isinstance(optimizer, cls)
        assert issubclass(type(optimizer), cls)
        assert type(optimizer) is not cls
        assert type(plain) is cls
        assert optimizer.get_config() == plain.get_config()
        assert float(optimizer.learning_rate) == 0.25

    @in_both_keras
    def test_takes_over_a_built_optimizer(self, package):
        keras = keras_of(package)
        model = make_model(keras)
        plain = keras.optimizers.SGD(0.1, momentum=0.9)
        x, y = data(seed=0)
        plain.apply_gradients(pairs(model, x, y))
        state = values(plain.variables)
        optimizer = hvd.DistributedOptimizer(plain)
        assert_close(optimizer.variables, state)
        optimizer.learning_rate = 0.5
        assert float(plain.learning_rate) == 0.5
        optimizer.apply_gradients(pairs(model, x, y))
        assert int(optimizer.iterations) == int(plain.iterations) == 2

    def test_of_a_class_of_ones_own(self):
        keras = keras_of("keras")

        class Halving(keras.optimizers.SGD):
            def apply(self, grads, trainable_variables=None):
                return super().apply([g / 2 for g in grads], trainable_variables)

        variable = keras.Variable([0.0])
        optimizer = hvd.DistributedOptimizer(Halving(1.0), op=hvd.Sum)
        optimizer.apply_gradients([(tf.constant([2.0]), variable)])
        assert isinstance(optimizer, Halving)
        assert float(variable[0]) == -hvd.size()

    @in_both_keras
    def test_twice_is_refused(self, package):
        optimizer = hvd.DistributedOptimizer(keras_of(package).optimizers.SGD())
        with pytest.raises(
            ValueError, match="is already wrapped for tfhvd; pass the original object"
        ):
            hvd.DistributedOptimizer(optimizer)

    @pytest.mark.parametrize("thing", ["sgd", None, 3.0, np.zeros(2)])
    def test_what_is_no_optimizer_is_refused(self, thing):
        with pytest.raises(TypeError, match="Expected: an optimizer of keras"):
            hvd.DistributedOptimizer(thing)


def test_slices_and_an_op_that_is_no_sum():
    optimizer = hvd.DistributedOptimizer(keras_of("tf_keras").optimizers.SGD(), op=hvd.Max)
    slices = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([0]), tf.constant([3, 2]))
    with pytest.raises(NotImplementedError, match="sparse_as_dense"):
        optimizer.apply_gradients([(slices, tf.Variable(tf.ones([3, 2])))])


@pytest.mark.ranks(2)
class TestCopies:
    """Whatever is made of a distributed optimizer is one, or an error."""

    def check(self, keras, made, optimizer):
        assert hvd.is_distributed(made)
        assert made is not optimizer
        assert float(np.array(made.learning_rate)) == 0.5
        variable = keras.Variable([0.0]) if keras.__name__ == "keras" else tf.Variable([0.0])
        made.apply_gradients([(tf.constant([hvd.rank() + 1.0]), variable)])
        total = sum(range(1, hvd.size() + 1))  # op=Sum went along
        np.testing.assert_allclose(np.array(variable), [-0.5 * total])

    def make(self, keras, **arguments):
        return hvd.DistributedOptimizer(keras.optimizers.SGD(0.5), op=hvd.Sum, **arguments)

    @pytest.mark.parametrize(
        "way", [copy.copy, copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))]
    )
    def test_of_keras_3(self, way):
        keras = keras_of("keras")
        optimizer = self.make(keras)
        self.check(keras, way(optimizer), optimizer)
        scaled = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.5), initial_scale=1.0)
        assert hvd.is_distributed(way(hvd.DistributedOptimizer(scaled)))

    @in_both_keras
    def test_from_its_configuration(self, package):
        keras = keras_of(package)
        optimizer = self.make(keras)
        self.check(keras, optimizer.from_config(optimizer.get_config()), optimizer)
        with pytest.raises(TypeError, match=r"optimizer.from_config\(config\)"):
            type(optimizer).from_config(optimizer.get_config())

    def test_of_tf_keras(self):
        keras = keras_of("tf_keras")
        optimizer = self.make(keras)
        self.check(keras, copy.copy(optimizer), optimizer)
        for way in (copy.deepcopy, pickle.dumps):  # which tf_keras has not got
            with pytest.raises((TypeError, RuntimeError)):
                way(optimizer)
        legacy = hvd.DistributedOptimizer(keras.optimizers.legacy.SGD(0.5), op=hvd.Sum)
        self.check(keras, copy.deepcopy(legacy), legacy)

    def test_local_variables(self):
        keras = keras_of("keras")
        optimizer, variable = self.make(keras), keras.Variable([0.0])
        optimizer.register_local_var(variable)
        made = copy.deepcopy(optimizer)
        made.apply_gradients([(tf.constant([hvd.rank() + 1.0]), variable)])
        np.testing.assert_allclose(np.array(variable), [-0.5 * (hvd.rank() + 1) / hvd.size()])
        with pytest.raises(pickle.PicklingError, match="local ones"):
            pickle.dumps(optimizer)

    def test_a_compression_with_a_state_is_not_shared(self):
        optimizer = self.make(keras_of("keras"), compression=hvd.Compression.topk(0.1))
        for way in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="compression=<a new one>"):
                way(optimizer)


@pytest.mark.ranks(2)
@pytest.mark.parametrize("graph", [False, True], ids=["eager", "graph"])
@pytest.mark.parametrize("passes", [1, 2])
def test_a_keras_that_does_not_clip_is_an_error(graph, passes, monkeypatch):
    """There gradients would never be reduced."""
    keras = keras_of("keras")

    def forget(self, grads):
        return grads

    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.5), backward_passes_per_step=passes)
    monkeypatch.setattr(type(optimizer), "_clip_gradients", forget)
    variable = keras.Variable([0.0])
    optimizer.build([variable])

    def step():
        optimizer.apply_gradients([(tf.constant([1.0]), variable)])

    with pytest.raises(RuntimeError, match="without its gradients being reduced"):
        for _ in range(passes):
            (tf.function(step) if graph else step)()
