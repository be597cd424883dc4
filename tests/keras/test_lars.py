"""LARS for Keras 3, beside a reference in NumPy."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from flavours import (
    assert_close,
    assert_same_on_all_ranks,
    data,
    make_model,
    own_gradients,
    summed,
    values,
)

import tfhvd.keras as hvd
from tfhvd.keras.wrap import learning_rate

ETA, DECAY, RATE, MOMENTUM = 0.01, 0.1, 2.0, 0.9


def lars(**arguments):
    given = {"learning_rate": RATE, "weight_decay": DECAY, "trust_coefficient": ETA}
    return hvd.optimizers.LARS(**{**given, **arguments})


def reference(weights, of_steps, excluded=(), nesterov=False):
    """The paper's algorithm: weights after some steps with these gradients."""
    weights = [w.astype("float64") for w in weights]
    velocities = [np.zeros_like(w) for w in weights]
    for gradients in of_steps:
        for n, (w, gradient) in enumerate(zip(weights, gradients)):
            gradient = gradient.astype("float64")
            local = 1.0
            if n not in excluded:
                size, of_gradient = np.linalg.norm(w), np.linalg.norm(gradient)
                if size > 0 and of_gradient > 0:
                    local = ETA * size / (of_gradient + DECAY * size)
                gradient = gradient + DECAY * w
            velocities[n] = MOMENTUM * velocities[n] - RATE * local * gradient
            ahead = MOMENTUM * velocities[n] - RATE * local * gradient
            weights[n] = w + (ahead if nesterov else velocities[n])
    return weights


def some_weights(seed=0):
    random = np.random.default_rng(seed)
    return [random.normal(size=shape).astype("float32") for shape in [(4, 3), (3,), (5,)]]


def variables_of(weights, names=("dense/kernel", "dense/bias", "other")):
    return [keras.Variable(w, name=name.split("/")[-1]) for w, name in zip(weights, names)]


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("compiled", [False, True])
def test_is_the_reference(nesterov, compiled):
    start = [*some_weights(), np.zeros(2, "float32"), np.ones(2, "float32")]
    steps = [[*some_weights(n), np.ones(2, "float32"), np.zeros(2, "float32")] for n in (1, 2, 3)]
    variables = variables_of(start, names=["kernel", "bias", "other", "zero", "still"])
    optimizer = lars(nesterov=nesterov)
    optimizer.build(variables)

    @tf.function(jit_compile=compiled)
    def apply(gradients):
        optimizer.apply(gradients, variables)

    for gradients in steps:
        apply([tf.constant(g) for g in gradients])
    assert_close(variables, reference(start, steps, excluded=[1], nesterov=nesterov))


def test_what_is_excluded():
    start, gradients = some_weights(), some_weights(1)
    for exclude, excluded in ((None, []), (["^ker", "other"], [0, 2])):
        variables = variables_of(start)
        lars(exclude=exclude).apply([tf.constant(g) for g in gradients], variables)
        assert_close(variables, reference(start, [gradients], excluded))
    variables = variables_of(start)
    optimizer = lars(exclude=None)
    optimizer.exclude_from_weight_decay(var_names=["other"])
    optimizer.apply([tf.constant(g) for g in gradients], variables)
    w, g = start[2], gradients[2]
    expected = w - RATE * ETA * np.linalg.norm(w) / np.linalg.norm(g) * g
    assert_close(variables[2:], [expected])


def test_normalization_is_excluded():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    model.add(keras.layers.BatchNormalization())
    model.add(keras.layers.LayerNormalization())
    start = values(model.trainable_variables)
    gradients = [np.full_like(w, 0.5) for w in start]
    lars().apply([tf.constant(g) for g in gradients], model.trainable_variables)
    assert_close(model.trainable_variables, reference(start, [gradients], [1, 2, 3, 4, 5]))


def test_rows_of_an_embedding():
    start, whole = some_weights()[0], np.zeros((4, 3), "float32")
    whole[1] = 2.0
    [variable] = variables_of([start])
    rows = tf.IndexedSlices(tf.constant(whole[1:2]), tf.constant([1]), tf.constant([4, 3]))
    lars().apply([rows], [variable])
    assert_close([variable], reference([start], [[whole]]))


@pytest.mark.parametrize(
    "wrong", [{"weight_decay": -1.0}, {"epsilon": -1.0}, {"trust_coefficient": 0.0}]
)
def test_wrong_arguments(wrong):
    with pytest.raises(ValueError, match=r"Received: weight_decay.* Expected: "):
        lars(**wrong)


@pytest.mark.ranks(1, 2)
class TestOnRanks:
    def test_distributed(self):
        """Averages come first, then the length of the step."""
        x, y = data(seed=hvd.rank())
        model, twin = make_model(keras), make_model(keras)
        mean = [g / hvd.size() for g in values(summed(own_gradients(twin, x, y)))]
        expected = reference(values(twin.weights), [mean], excluded=[1, 3])
        model.compile(hvd.DistributedOptimizer(lars()), keras.losses.MeanSquaredError())
        model.fit(x, y, batch_size=len(x), verbose=0)
        assert_close(model.weights, expected, rtol=1e-4)

    def test_saved_and_opened(self, tmp_path):
        x, y = data(seed=hvd.rank())
        model = make_model(keras)
        optimizer = hvd.DistributedOptimizer(lars(nesterov=True, exclude=["bias"]))
        model.compile(optimizer, keras.losses.MeanSquaredError())
        model.fit(x, y, verbose=0)
        file = tmp_path / f"{hvd.rank()}.keras"
        model.save(file)
        again = hvd.load_model(file)
        assert hvd.is_distributed(again.optimizer)
        assert isinstance(again.optimizer, hvd.optimizers.LARS)
        assert again.optimizer.get_config() == model.optimizer.get_config()
        for one in (model, again):
            one.fit(x, y, verbose=0)
        assert_close(again.weights, model.weights)
        assert_same_on_all_ranks(again.weights)

    def test_momentum_is_rescaled_with_the_rate(self):
        [variable] = variables_of(some_weights()[:1])
        optimizer = lars()
        optimizer.apply([tf.ones_like(variable)], [variable])
        before = values(optimizer.momentums)
        learning_rate.put(optimizer, RATE / 4, momentum_correction=True)
        assert_close(optimizer.momentums, [m / 4 for m in before])
