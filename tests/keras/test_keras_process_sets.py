"""Wrappers, compression and batch normalization in process sets, which overlap here."""

import importlib.util

import numpy as np
import pytest
import tensorflow as tf
from flavours import in_both_keras, keras_of

import tfhvd
import tfhvd.keras as hvd
from tfhvd.gradients.options import ReductionOptions
from tfhvd.gradients.reducer import GradientReducer

pytestmark = pytest.mark.ranks(4)


@pytest.fixture(scope="module")
def sets():
    """Rank 2 is in both."""
    added = [tfhvd.add_process_set([0, 1, 2]), tfhvd.add_process_set([2, 3])]
    yield added
    for process_set in added:
        tfhvd.remove_process_set(process_set)


def own_sets(sets):
    return [process_set for process_set in sets if process_set.included()]


def mean(process_set):
    """Of gradients that are 1 on rank 0, 2 on rank 1, ..."""
    return np.mean([rank + 1.0 for rank in process_set.ranks])


OPTIMIZERS = {
    "keras": lambda: keras_of("keras").optimizers.SGD(1.0),
    "keras, scaled": lambda: keras_of("keras").optimizers.LossScaleOptimizer(
        keras_of("keras").optimizers.SGD(1.0), initial_scale=1.0
    ),
    "keras, several passes": lambda: keras_of("keras").optimizers.SGD(1.0),
    "tf_keras": lambda: keras_of("tf_keras").optimizers.SGD(1.0),
    "tf_keras legacy": lambda: keras_of("tf_keras").optimizers.legacy.SGD(1.0),
    "compat.v1": lambda: tf.compat.v1.train.GradientDescentOptimizer(1.0),
}


def variable_for(kind, value):
    return keras_of("keras").Variable(value) if kind.startswith("keras") else tf.Variable(value)


@pytest.mark.parametrize("kind", list(OPTIMIZERS))
def test_an_optimizer_reduces_over_its_set(sets, kind):
    """Dense gradients and slices, with what stays a rank's own divided by the set's size."""
    passes = 2 if "passes" in kind else 1
    for process_set in own_sets(sets):
        dense, table, own = (variable_for(kind, np.zeros([4, 1], "float32")) for _ in range(3))
        optimizer = tfhvd.DistributedOptimizer(
            OPTIMIZERS[kind](),
            process_set=process_set,
            backward_passes_per_step=passes,
            average_aggregated_gradients=True,
        )
        optimizer.register_local_var(own)
        value = tf.fill([4, 1], hvd.rank() + 1.0)
        place = process_set.rank()
        rows = tf.IndexedSlices(value[:1], tf.constant([place]), tf.constant([4, 1]))
        for _ in range(passes):
            update(optimizer, [(value, dense), (rows, table), (value, own)])
        close = {"rtol": 1e-6}
        np.testing.assert_allclose(np.array(dense), np.full([4, 1], -mean(process_set)), **close)
        by_row = np.zeros([4, 1])
        by_row[: process_set.size(), 0] = [
            -(r + 1.0) / process_set.size() for r in process_set.ranks
        ]
        np.testing.assert_allclose(np.array(table), by_row, **close)
        part = (hvd.rank() + 1.0) / process_set.size()
        np.testing.assert_allclose(np.array(own), np.full([4, 1], -part), **close)


def update(optimizer, pairs):
    if not isinstance(optimizer, tf.compat.v1.train.Optimizer):
        return optimizer.apply_gradients(pairs)

    def loss():
        total = 0.0
        for gradient, variable in pairs:
            if isinstance(gradient, tf.IndexedSlices):
                total += tf.reduce_sum(tf.gather(variable, gradient.indices) * gradient.values)
            else:
                total += tf.reduce_sum(variable * gradient)
        return total

    return optimizer.minimize(loss, var_list=[variable for _, variable in pairs])


@pytest.mark.parametrize("wrap", [tfhvd.DistributedGradientTape, "partial"])
def test_a_tape_reduces_over_its_set(sets, wrap):
    layer = keras_of("keras").layers.Dense(1)
    layer.build([None, 1])
    for process_set in own_sets(sets):
        variables = [tf.Variable([1.0]), layer.kernel.value]

        @tf.function
        def gradients(process_set=process_set, variables=variables):
            arguments = {"process_set": process_set, "groups": 1}
            if wrap == "partial":
                arguments["local_layers"] = layer
            wrapper = tfhvd.PartialDistributedGradientTape if wrap == "partial" else wrap
            with wrapper(tf.GradientTape(), **arguments) as tape:
                loss = sum(tf.reduce_sum(v) for v in variables) * (hvd.rank() + 1.0)
            return tape.gradient(loss, variables)

        shared, kernel = gradients()
        np.testing.assert_allclose(shared, [mean(process_set)], rtol=1e-6)
        own = (hvd.rank() + 1.0) / process_set.size()
        np.testing.assert_allclose(kernel, [[own if wrap == "partial" else mean(process_set)]])


@pytest.mark.parametrize("kind", ["topk", "powersgd", "fp16"])
def test_compression_in_a_set(sets, kind):
    """What was applied and what is remembered are the sum of the members' gradients."""
    shape = [16, 8]
    for process_set in own_sets(sets):
        compression = getattr(hvd.Compression, kind)
        if kind != "fp16":
            compression = compression(0.1, least=1) if kind == "topk" else compression(rank=1)
        options = ReductionOptions(name=kind, compression=compression, process_set=process_set)
        reduce = GradientReducer(options)
        variable = tf.Variable(tf.zeros(shape))
        applied, given = np.zeros(shape), np.zeros(shape)
        for step in range(3):
            every = [
                np.random.default_rng([step, rank]).normal(size=shape).astype("float32")
                for rank in process_set.ranks
            ]
            [reduced] = reduce([tf.constant(every[process_set.rank()])], [variable])
            applied += reduced.numpy()
            given += np.mean(every, 0)
        if kind != "fp16":
            assert not np.allclose(applied, given, atol=0.1)  # something is left out
            [error, *_] = compression.state()
            applied += tfhvd.allreduce(error, process_set=process_set).numpy()
        np.testing.assert_allclose(applied, given, atol=1e-2 if kind == "fp16" else 1e-4)


def batch_normalization_of(package, monkeypatch):
    """Returns hvd.SyncBatchNormalization as it is where tf.keras is that Keras."""
    if package == "keras":
        return hvd.SyncBatchNormalization
    # As with TF_USE_LEGACY_KERAS=1, by which TensorFlow chooses when it is imported.
    monkeypatch.setattr(tf, "keras", keras_of(package))
    spec = importlib.util.find_spec("tfhvd.keras.batch_norm")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.SyncBatchNormalization


@in_both_keras
def test_batch_normalization_over_a_set(sets, package, monkeypatch):
    """Ranks of unequal batches give what one rank with the members' batches gives."""
    keras, batch_normalization = keras_of(package), batch_normalization_of(package, monkeypatch)
    hvd.DistributedOptimizer(keras.optimizers.SGD())  # from here on moments are synchronized
    for process_set in own_sets(sets):
        layer = batch_normalization(process_set=process_set)
        assert isinstance(layer, keras.layers.BatchNormalization)
        batches = [
            np.random.default_rng(rank).normal(rank, 2.0, size=(rank + 2, 3)).astype("float32")
            for rank in process_set.ranks
        ]
        joined = np.concatenate(batches)
        own = batches[process_set.rank()]
        expected = (own - joined.mean(0)) / np.sqrt(joined.var(0) + layer.epsilon)
        actual = tf.function(lambda x, layer=layer: layer(x, training=True))(own)
        np.testing.assert_allclose(actual, expected, rtol=2e-4, atol=2e-4)
