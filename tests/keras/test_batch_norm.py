"""Ranks with unequal batches normalize as one rank with the joined batch, gradients included."""

import numpy as np
import pytest
import tensorflow as tf
from flavours import assert_same_on_all_ranks, in_both_keras, keras_of, set_seed
from variants import first_of

import tfhvd.keras as hvd
from tfhvd.ops import batch_moments

pytestmark = pytest.mark.ranks(1, 2, 4)


@pytest.fixture(autouse=True, params=["by rows", "by sums"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How ranks put their moments together: the second way is that of elastic jobs."""
    if request.param == "by sums":
        monkeypatch.setattr(batch_moments, "_by_rows", batch_moments._by_sums)


COUNTS = [5, 2, 1, 4]  # samples by rank


def joined(shape, counts=COUNTS):
    """All ranks' samples, and where this rank's are."""
    counts = counts[: hvd.size()]
    x = np.random.default_rng(3).normal(5.0, 2.0, size=(sum(counts), *shape)).astype("float32")
    begin = sum(counts[: hvd.rank()])
    return x, slice(begin, begin + counts[hvd.rank()])


def layers_of(package):
    """Imports a Keras after tfhvd, which covers it once something of it is wrapped."""
    keras = keras_of(package)
    hvd.DistributedOptimizer(keras.optimizers.SGD())
    return keras.layers


def result(layer, x, mask=None):
    """Outputs, and the gradients of a sum over samples by inputs and weights."""
    x = tf.constant(x)
    weights = tf.cast(tf.range(tf.size(x[0])), x.dtype)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = (
                layer(x, training=True)
                if mask is None
                else layer(x, training=True, mask=tf.constant(mask))
            )
            loss = tf.reduce_sum(tf.reshape(y, [tf.shape(y)[0], -1]) ** 3 * weights)
        return y, tape.gradient(loss, [x, *layer.trainable_weights])

    return step()


def compare(layer, plain, x, own, mask=None):
    expected, (of_x, *of_weights) = result(plain, x, mask)
    actual, (of_own, *own_of_weights) = result(layer, x[own], None if mask is None else mask[own])
    close = {"rtol": 2e-4, "atol": 2e-4}
    np.testing.assert_allclose(actual, expected[own], **close)
    np.testing.assert_allclose(of_own, of_x[own], **close)
    for mine, whole in zip(own_of_weights, of_weights):
        np.testing.assert_allclose(hvd.allreduce(mine, op=hvd.Sum), whole, **close)
    for mine, whole in zip(layer.weights, plain.weights):
        np.testing.assert_allclose(np.array(mine), np.array(whole), **close)
    assert_same_on_all_ranks(layer.non_trainable_weights)


@in_both_keras
@pytest.mark.parametrize("shape", first_of([(3,), (4, 2, 3)]), ids=str)
def test_keras_layer_that_is_synchronized(package, shape):
    layers = layers_of(package)
    more = {"fused": False} if package == "tf_keras" else {}
    x, own = joined(shape)
    compare(
        layers.BatchNormalization(synchronized=True),
        layers.BatchNormalization(**more),
        x,
        own,
    )


def test_layer_of_tfhvd():
    layers = keras_of("keras").layers
    x, own = joined((4, 3))
    layer = hvd.SyncBatchNormalization(momentum=0.5, axis=1)
    compare(layer, layers.BatchNormalization(momentum=0.5, axis=1), x, own)
    again = hvd.SyncBatchNormalization.from_config(layer.get_config())
    assert again.synchronized and again.momentum == 0.5


@in_both_keras
def test_masked_steps_do_not_count(package):
    layers = layers_of(package)
    more = {"fused": False} if package == "tf_keras" else {}
    x, own = joined((4, 3))
    mask = np.random.default_rng(1).random(x.shape[:2]) > 0.4
    x[~mask] = 100.0
    layer = layers.BatchNormalization(synchronized=True)
    compare(layer, layers.BatchNormalization(**more), x, own, mask)


@pytest.mark.ranks(2)
def test_a_rank_without_samples():
    layer = hvd.SyncBatchNormalization()
    x, own = joined((3,), counts=[0, 6])
    y = layer(tf.constant(x[own]), training=True)
    assert y.shape == [len(x[own]), 3]
    np.testing.assert_allclose(layer.moving_mean, 0.01 * x.mean(0), rtol=1e-5)
    np.testing.assert_allclose(layer.moving_variance, 0.99 + 0.01 * x.var(0), rtol=1e-5)


@pytest.mark.ranks(2)
def test_far_from_zero():
    """Where E[x^2] - E[x]^2 of float32 would have no digit left."""
    layer = hvd.SyncBatchNormalization(momentum=0.0)
    x, own = joined((2,), counts=[64, 32])
    x += 30000.0
    layer(tf.constant(x[own]), training=True)
    np.testing.assert_allclose(layer.moving_variance, x.astype("float64").var(0), rtol=1e-2)


@pytest.mark.ranks(2)
@in_both_keras
def test_in_fit(package):
    keras = keras_of(package)
    set_seed(keras, 0)
    model = keras.Sequential(
        [
            keras.layers.Input((4,)),
            keras.layers.Dense(3),
            keras.layers.BatchNormalization(synchronized=True),
            keras.layers.Dense(1),
        ]
    )
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), "mse")
    x, own = joined((4,), counts=[8, 8])
    model.fit(x[own], x[own][:, :1], batch_size=4, verbose=0)
    assert_same_on_all_ranks(model.weights)


def test_inference_uses_the_moving_statistics():
    layer = hvd.SyncBatchNormalization(epsilon=0.0)
    if hvd.rank() == 0:  # alone: nothing to wait for
        np.testing.assert_allclose(layer(tf.constant([[2.0, 4.0]]), training=False), [[2.0, 4.0]])
