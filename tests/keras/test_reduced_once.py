"""Each variable's gradient is reduced exactly once per update, however the model is trained.

The reduction is a sum of gradients that differ by rank: without it the update is this rank's own,
done twice it is size() times too large.
"""

import numpy as np
import pytest
import tensorflow as tf
from flavours import (
    assert_close,
    data,
    in_both_keras,
    keras_of,
    make_model,
    mean_square,
    own_gradients,
    summed,
    values,
)
from variants import also
from with_xla import needs_xla

import tfhvd
import tfhvd.keras as hvd

pytestmark = pytest.mark.ranks(2)

RATE = 0.125


def fit(keras, model, x, y):
    model.compile(model.optimizer, keras.losses.MeanSquaredError())
    model.fit(x, y, batch_size=len(x), epochs=1, verbose=0)


def fit_compiled(keras, model, x, y):
    model.compile(model.optimizer, keras.losses.MeanSquaredError(), jit_compile=True)
    model.fit(x, y, batch_size=len(x), epochs=1, verbose=0)
    assert model.jit_compile  # nothing made it train uncompiled


def train_on_batch(keras, model, x, y):
    model.compile(model.optimizer, keras.losses.MeanSquaredError())
    model.train_on_batch(x, y)


def run_eagerly(keras, model, x, y):
    model.compile(model.optimizer, keras.losses.MeanSquaredError(), run_eagerly=True)
    model.fit(x, y, batch_size=len(x), epochs=1, verbose=0)


class Bypass:
    """An `apply_gradients` that does not call what updates elsewhere."""

    def apply_gradients(self, grads_and_vars, *args, **kwargs):
        for gradient, variable in grads_and_vars:
            variable.assign_sub(RATE * gradient)


class Detour:
    """One that updates by `apply`, in a function that comes to Python once."""

    def apply_gradients(self, grads_and_vars):
        gradients, variables = zip(*grads_and_vars)
        if not hasattr(self, "update"):
            self.update = tf.function(lambda *g: self.apply(g, variables))
        self.update(*gradients)


@pytest.mark.parametrize("package", ["keras", "tf_keras", also("legacy")])
def test_an_apply_gradients_that_reduces_nothing_is_refused(package):
    keras = keras_of("tf_keras" if package == "legacy" else package)
    place = keras.optimizers.legacy if package == "legacy" else keras.optimizers

    class Own(Bypass, place.SGD):
        pass

    method = {"keras": "apply", "tf_keras": "aggregate_gradients"}
    model = make_model(keras)
    model.compile(hvd.DistributedOptimizer(Own(RATE)), "mse")
    text = f"without calling self.{method.get(package, '_aggregate_gradients')}, which reduces"
    with pytest.raises(tfhvd.NotSynchronizedError, match=text) as error:
        model.fit(*data(hvd.rank()), verbose=0)
    assert "Own.apply_gradients" in str(error.value)
    assert "hvd.DistributedGradientTape" in str(error.value)


def test_an_apply_gradients_that_is_traced_once_is_not_refused():
    keras = keras_of("keras")

    class Own(Detour, keras.optimizers.SGD):
        pass

    model = make_model(keras)
    optimizer = hvd.DistributedOptimizer(Own(RATE))
    x, y = data(hvd.rank())
    optimizer.build(model.trainable_variables)
    for _ in range(2):
        gradients = own_gradients(model, x, y)
        expected = [v - RATE * s / 2 for v, s in zip(model.trainable_variables, summed(gradients))]
        optimizer.apply_gradients(list(zip(gradients, model.trainable_variables)))
        assert_close(model.trainable_variables, expected)


def custom_train_step(keras, model, x, y):
    class Custom(keras.Model):
        def train_step(self, batch):
            inputs, targets = batch[0], batch[1]
            with tf.GradientTape() as tape:
                loss = mean_square(targets, self(inputs, training=True))
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
            return {"loss": loss}

    custom = Custom(model.inputs, model.outputs)
    custom.compile(model.optimizer)
    custom.fit(x, y, batch_size=len(x), epochs=1, verbose=0)


def eager_loop(keras, model, x, y):
    gradients = own_gradients(model, x, y)
    model.optimizer.apply_gradients(zip(gradients, model.trainable_variables))


def graph_loop(keras, model, x, y):
    tf.function(lambda: eager_loop(keras, model, x, y))()


COMPILED_FIT = also(fit_compiled, marks=[needs_xla])
WAYS = [fit, COMPILED_FIT, train_on_batch, run_eagerly, custom_train_step, eager_loop, graph_loop]


def check(keras, optimizer, train):
    """Trains for one step, which must subtract the sum of the ranks' gradients."""
    model = make_model(keras)
    model.optimizer = optimizer
    x, y = data(seed=hvd.rank())
    gradients = summed(own_gradients(model, x, y))
    expected = [w - RATE * g for w, g in zip(values(model.trainable_variables), values(gradients))]
    train(keras, model, x, y)
    assert_close(model.trainable_variables, expected)


@pytest.mark.parametrize("train", WAYS, ids=lambda way: way.__name__)
def test_optimizer_of_keras_3(train):
    keras = keras_of("keras")
    check(keras, hvd.DistributedOptimizer(keras.optimizers.SGD(RATE), op=hvd.Sum), train)


@pytest.mark.parametrize(
    "train", [fit, train_on_batch, custom_train_step, graph_loop], ids=lambda way: way.__name__
)
def test_optimizer_of_tf_keras(train):
    keras = keras_of("tf_keras")
    check(keras, hvd.DistributedOptimizer(keras.optimizers.SGD(RATE), op=hvd.Sum), train)


@pytest.mark.ranks(1, 4)
@pytest.mark.parametrize("train", [fit, COMPILED_FIT], ids=lambda way: way.__name__)
def test_on_one_rank_and_on_four(train):
    keras = keras_of("keras")
    check(keras, hvd.DistributedOptimizer(keras.optimizers.SGD(RATE), op=hvd.Sum), train)


@pytest.mark.parametrize("train", [fit, graph_loop], ids=lambda way: way.__name__)
def test_legacy_optimizer_of_tf_keras(train):
    keras = keras_of("tf_keras")
    legacy = keras.optimizers.legacy.SGD(RATE)
    check(keras, hvd.DistributedOptimizer(legacy, op=hvd.Sum), train)


@pytest.mark.parametrize("graph", [False, True], ids=["eager", "graph"])
def test_gradient_tape(graph):
    model = make_model(keras_of("keras"))
    x, y = data(seed=hvd.rank())
    expected = summed(own_gradients(model, x, y))

    def gradients():
        with tfhvd.DistributedGradientTape(tf.GradientTape(), op=hvd.Sum) as tape:
            loss = mean_square(y, model(x, training=True))
        return tape.gradient(loss, model.trainable_variables)

    assert_close((tf.function(gradients) if graph else gradients)(), expected)


def test_optimizer_of_compat_v1():
    variable = tf.Variable([1.0, 2.0])
    plain = tf.compat.v1.train.GradientDescentOptimizer(RATE)
    optimizer = tfhvd.DistributedOptimizer(plain, op=tfhvd.Sum)
    assert isinstance(optimizer, tf.compat.v1.train.GradientDescentOptimizer)
    optimizer.minimize(lambda: tf.reduce_sum(variable) * (hvd.rank() + 1.0), var_list=[variable])
    total = sum(range(1, hvd.size() + 1))
    np.testing.assert_allclose(variable, np.array([1.0, 2.0]) - RATE * total)


@in_both_keras
def test_top_level_optimizer_is_the_keras_one(package):
    keras = keras_of(package)
    plain = keras.optimizers.SGD(RATE)
    check(keras, tfhvd.DistributedOptimizer(plain, op=tfhvd.Sum), graph_loop)


def test_many_steps_in_one_execution():
    keras = keras_of("keras")
    model = make_model(keras)
    x, y = data(seed=hvd.rank(), samples=16)
    weights = [tf.Variable(v) for v in model.trainable_variables]
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.01), op=hvd.Sum)
    twin = make_model(keras)
    for start in range(0, 16, 4):
        gradients = summed(own_gradients(twin, x[start : start + 4], y[start : start + 4]))
        for weight, variable, gradient in zip(weights, twin.trainable_variables, gradients):
            weight.assign_sub(0.01 * gradient)
            variable.assign(weight)
    model.compile(optimizer, keras.losses.MeanSquaredError(), steps_per_execution=4)
    model.fit(x, y, batch_size=4, shuffle=False, verbose=0)
    assert_close(model.trainable_variables, weights)
