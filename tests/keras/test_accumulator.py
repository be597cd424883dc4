"""backward_passes_per_step: n calls of every kind of optimizer are one update with the sum."""

import numpy as np
import pytest
import tensorflow as tf
from flavours import keras_of
from variants import also

import tfhvd as hvd

pytestmark = pytest.mark.ranks(1, 2, 4)

PASSES = 3


def keras_3(built):
    keras = keras_of("keras")
    variable = keras.Variable([1.0, 2.0])
    plain = keras.optimizers.SGD(0.5, momentum=0.5)
    if built:
        plain.build([variable])
    return plain, variable


def several():
    keras = keras_of("keras")
    o = keras.optimizers
    if not hasattr(o, "MultiOptimizer"):
        pytest.skip("this Keras has no MultiOptimizer")
    plain = o.MultiOptimizer(o.OptimizerMap(o.SGD(0.5, momentum=0.5), {".*bias": o.Adam(0.01)}))
    return plain, keras.Variable([1.0, 2.0])


def tf_keras(legacy):
    optimizers = keras_of("tf_keras").optimizers
    place = optimizers.legacy if legacy else optimizers
    return place.SGD(0.5, momentum=0.5), tf.Variable([1.0, 2.0])


def compat_v1():
    return tf.compat.v1.train.MomentumOptimizer(0.5, momentum=0.5), tf.Variable([1.0, 2.0])


KINDS = {
    "keras": lambda: keras_3(built=False),
    "keras built": lambda: keras_3(built=True),
    "keras several": several,
    "tf_keras": lambda: tf_keras(legacy=False),
    "tf_keras legacy": lambda: tf_keras(legacy=True),
    "compat.v1": compat_v1,
}


def expected(gradients, average):
    """The variable after each call: plain SGD with momentum, once per PASSES calls."""
    value, velocity, values = np.array([1.0, 2.0]), np.zeros(2), []
    for number, _ in enumerate(gradients):
        if number % PASSES == PASSES - 1:
            total = np.sum(gradients[number + 1 - PASSES : number + 1], axis=0)
            velocity = 0.5 * velocity - 0.5 * (total / PASSES if average else total)
            value = value + velocity
        values.append(value)
    return values


@pytest.mark.parametrize("mode", ["function", also("eager")])
@pytest.mark.parametrize("average", [True, also(False)])
@pytest.mark.parametrize("kind", list(KINDS))
def test_calls_between_updates_only_add_up(kind, average, mode):
    plain, variable = KINDS[kind]()
    optimizer = hvd.DistributedOptimizer(
        plain, backward_passes_per_step=PASSES, average_aggregated_gradients=average
    )

    def step(gradient):
        if kind == "compat.v1":
            loss = lambda: tf.reduce_sum(variable * gradient)  # noqa: E731
            optimizer.apply_gradients(optimizer.compute_gradients(loss, [variable]))
        else:
            optimizer.apply_gradients([(gradient, variable)])

    run = tf.function(step) if mode == "function" else step
    of_calls = [np.array([number + 1.0, -number]) for number in range(2 * PASSES)]
    mean = np.mean([rank + 1.0 for rank in range(hvd.size())])
    for number, value in enumerate(expected([mean * g for g in of_calls], average)):
        run(tf.constant(of_calls[number] * (hvd.rank() + 1), tf.float32))
        np.testing.assert_allclose(variable, value, rtol=1e-5, err_msg=f"call {number}")


@pytest.mark.parametrize("kind", ["keras", "tf_keras", "legacy"])
def test_within_a_loss_scale(kind):
    """A gradient that is not finite on one rank, in one pass, costs one update on every rank."""
    package = "keras" if kind == "keras" else "tf_keras"
    keras = keras_of(package)
    optimizers = keras.optimizers.legacy if kind == "legacy" else keras.optimizers
    start = [1.0, 1.0]
    variable = keras.Variable(start) if package == "keras" else tf.Variable(start)
    scale = 4.0 if package == "keras" else 1.0  # tf_keras leaves unscaling to its user
    optimizer = hvd.DistributedOptimizer(
        keras.mixed_precision.LossScaleOptimizer(optimizers.SGD(1.0), initial_scale=4.0),
        backward_passes_per_step=2,
    )

    @tf.function
    def step(gradient):
        optimizer.apply_gradients([(gradient, variable)])

    for value in (1.0, 2.0):
        step(tf.constant([scale * value, 0.0]))
    np.testing.assert_allclose(variable, [1.0 - 3.0, 1.0])
    bad = np.inf if hvd.rank() == hvd.size() - 1 else 1.0
    for value in (bad, 1.0):
        step(tf.constant([scale * value, 0.0]))
    assert np.all(np.isfinite(variable))
    assert len({float(v[0]) for v in hvd.allgather_object(np.array(variable))}) == 1
    before = np.array(variable)
    for value in (1.0, 2.0):
        step(tf.constant([scale * value, 0.0]))
    assert variable[0] < before[0] and variable[1] == before[1]


def test_slices_and_what_has_no_gradient():
    optimizers = keras_of("tf_keras").optimizers
    table, unused = tf.Variable(tf.zeros([4, 2])), tf.Variable([1.0])
    optimizer = hvd.DistributedOptimizer(
        optimizers.SGD(1.0), op=hvd.Sum, backward_passes_per_step=2
    )
    for row in ([0, 0], [0, 3]):
        gradient = tf.IndexedSlices(tf.ones([2, 2]), tf.constant(row), tf.constant([4, 2]))
        optimizer.apply_gradients([(gradient, table), (None, unused)])
    np.testing.assert_array_equal(table[:, 0], [-3.0 * hvd.size(), 0, 0, -1.0 * hvd.size()])
    assert float(unused[0]) == 1.0


@pytest.mark.ranks(1)
def test_contradictions_are_refused():
    plain = keras_of("keras").optimizers.SGD(gradient_accumulation_steps=2)
    with pytest.raises(ValueError, match="gradient_accumulation_steps=2"):
        hvd.DistributedOptimizer(plain, backward_passes_per_step=3)
    for kind in KINDS:
        with pytest.raises(ValueError, match="1 or more"):
            hvd.DistributedOptimizer(KINDS[kind]()[0], backward_passes_per_step=0)
