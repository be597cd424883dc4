"""Layers that ranks adapt to their own data: all predict alike after `fit`, or it is said."""

import numpy as np
import pytest
import tensorflow as tf
from flavours import assert_same_on_all_ranks, data, in_both_keras, keras_of, set_seed
from variants import also

import tfhvd.keras as hvd

pytestmark = pytest.mark.ranks(2, 4)


def compiled(keras, layers):
    model = keras.Sequential(layers)
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), "mse")
    return model


@in_both_keras
@pytest.mark.parametrize("callbacks", [[], also([hvd.BroadcastGlobalVariablesCallback(0)])])
@pytest.mark.parametrize("predicts", [False, also(True)])
def test_normalization(package, callbacks, predicts, said):
    keras = keras_of(package)
    set_seed(keras, 0)
    x, y = data(seed=hvd.rank())
    normalization = keras.layers.Normalization()
    normalization.adapt(x * (1 + hvd.rank()) + hvd.rank())
    model = compiled(keras, [keras.Input((4,)), normalization, keras.layers.Dense(1)])
    if predicts:  # traced with this rank's own statistics
        model.predict(x, verbose=0)
        model.evaluate(x, y, verbose=0)
    own = hvd.broadcast_object([np.array(normalization.mean), np.array(normalization.variance)], 0)
    model.fit(x, y, batch_size=4, verbose=0, callbacks=callbacks)
    assert_same_on_all_ranks([normalization.mean, normalization.variance])
    np.testing.assert_array_equal(own, [normalization.mean, normalization.variance])
    given = data(seed=9)
    assert_same_on_all_ranks([model.predict(given[0], verbose=0)])
    assert_same_on_all_ranks([np.array(model.evaluate(*given, verbose=0))])
    if callbacks:
        assert not said()


@in_both_keras
def test_normalization_that_is_adapted_anew(package):
    keras = keras_of(package)
    set_seed(keras, 0)
    x, y = data(seed=hvd.rank())
    normalization = keras.layers.Normalization()
    normalization.adapt(data(seed=0)[0])
    model = compiled(keras, [keras.Input((4,)), normalization, keras.layers.Dense(1)])
    model.fit(x, y, batch_size=4, verbose=0)
    normalization.adapt(x * 3)
    model.compile(model.optimizer, "mse")  # as Keras asks for
    model.fit(x, y, batch_size=4, verbose=0)
    assert_same_on_all_ranks([normalization.mean, *model.weights])


def lookup(keras, words):
    layer = keras.layers.StringLookup(output_mode="multi_hot", max_tokens=5)
    layer.adapt(tf.constant(words))
    return layer, tf.constant([["a"], ["b"], ["c"], ["d"]]), tf.string


def discretization(keras, words):
    layer = keras.layers.Discretization(num_bins=3, output_mode="multi_hot")
    layer.adapt(np.array([[float(ord(word))] for word in words], "float32"))
    return layer, np.array([[97.0], [98.0], [99.0], [100.0]], "float32"), "float32"


@in_both_keras
@pytest.mark.parametrize("make", [lookup, discretization])
@pytest.mark.parametrize("alike", [False, True])
def test_what_no_variable_holds_is_said(package, make, alike, said):
    keras = keras_of(package)
    set_seed(keras, 0)
    words = ["a", "b", "b", "c"] if alike or hvd.rank() == 0 else ["x", "y", "y", "z"]
    layer, x, kind = make(keras, words)
    model = compiled(keras, [keras.Input((1,), dtype=kind), layer, keras.layers.Dense(1)])
    y = tf.constant(np.arange(4.0, dtype="float32")[:, None] + hvd.rank())
    for _ in range(2):
        model.fit(x, y, batch_size=2, verbose=0)
    if alike or hvd.rank():
        assert not said()
    else:
        [line] = said()
        assert "adapted to other data on each rank" in line and layer.name in line


@in_both_keras
def test_the_optimizer_of_a_model_within_is_taken_over(package, said):
    """By ranks with fewer steps, where the outer model has a training step of its own."""
    keras = keras_of(package)
    set_seed(keras, 0)

    class Outer(keras.Model):
        def __init__(self):
            super().__init__()
            self.inner = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
            self.inner.compile(keras.optimizers.SGD(0.01, momentum=0.9), "mse")

        def call(self, inputs):
            return self.inner(inputs)

        def train_step(self, batch):
            x, y = batch
            with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
                loss = tf.reduce_mean(tf.square(self.inner(x) - y))
            variables = self.inner.trainable_variables
            self.inner.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
            return {"loss": loss}

    model = Outer()
    model.compile(loss="mse")
    model.fit(*data(hvd.rank(), 8 + 8 * hvd.rank()), batch_size=4, verbose=0)
    optimizer = model.inner.optimizer
    kept = optimizer.variables
    assert_same_on_all_ranks([*model.inner.weights, *(kept() if callable(kept) else kept)])
    assert int(optimizer.iterations) == 2 + 2 * (hvd.size() - 1)


@in_both_keras
def test_statistics_beside_weights_that_are_local(package):
    """They are this rank's own, though no gradient is taken for them."""
    keras = keras_of(package)
    set_seed(keras, 0)
    norm = keras.layers.BatchNormalization()
    layers = [keras.Input((4,)), keras.layers.Dense(3), norm, keras.layers.Dense(1)]
    model = keras.Sequential(layers)
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.01))
    for variable in norm.trainable_weights:
        optimizer.register_local_var(variable)
    model.compile(optimizer, "mse", jit_compile=False)
    model.fit(*data(hvd.rank(), 8 + 8 * hvd.rank()), batch_size=4, verbose=0)
    first, second = hvd.allgather_object([np.array(v) for v in norm.weights])[:2]
    assert all(not np.array_equal(a, b) for a, b in zip(first, second))
    assert_same_on_all_ranks([*model.layers[0].weights, *model.layers[-1].weights])
