"""What tfhvd cannot work beside is refused, with one line."""

import pytest
import tensorflow as tf
from flavours import data, in_both_keras, keras_of, make_model

import tfhvd
import tfhvd.keras as hvd

pytestmark = pytest.mark.ranks(1, 2)

OTHER_BACKEND = r"KERAS_BACKEND=jax on 2 ranks. Expected: KERAS_BACKEND=tensorflow"
STRATEGY = r"optimizer or tape cannot be used under a MirroredStrategy.*Leave out the strategy"


def test_another_backend_of_keras(monkeypatch):
    keras = keras_of("keras")
    model = make_model(keras)
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
    x, y = data(seed=0)
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    calls = [
        lambda: hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)),
        lambda: tfhvd.PartialDistributedOptimizer(keras.optimizers.SGD(0.1)),
        lambda: model.fit(x, y, verbose=0),
    ]
    for call in calls:
        if hvd.size() == 1:
            call()
            continue
        with pytest.raises(tfhvd.TfhvdError, match=OTHER_BACKEND) as e:
            call()
        assert "\n" not in str(e.value)
    hvd.DistributedOptimizer(keras_of("tf_keras").optimizers.SGD(0.1))  # has no backends


@in_both_keras
def test_a_strategy_of_tensorflow(package):
    keras = keras_of(package)
    optimizers = [keras.optimizers.SGD(0.1), tf.compat.v1.train.GradientDescentOptimizer(0.1)]
    outside = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))
    variable = tf.Variable(1.0)
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        calls = [lambda o=o: tfhvd.DistributedOptimizer(o) for o in optimizers]
        calls.append(lambda: tfhvd.DistributedGradientTape(tf.GradientTape()))
        for call in calls:
            with pytest.raises(tfhvd.TfhvdError, match=STRATEGY) as e:
                call()
            assert "\n" not in str(e.value)
        # Keras 3 takes over the error of what it calls; the reason stands in it.
        with pytest.raises(Exception, match=STRATEGY):
            outside.apply_gradients([(tf.constant(1.0), variable)])
    outside.apply_gradients([(tf.constant(1.0), variable)])
