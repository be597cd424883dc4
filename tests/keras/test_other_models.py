"""Ranks that have built different models are told which variable of which layer differs."""

import pytest
import tensorflow as tf
import user_messages
from flavours import data, in_both_keras, keras_of

import tfhvd.keras as hvd

pytestmark = pytest.mark.ranks(2)


@in_both_keras
def test_the_layer_is_named_in_which_the_models_differ(package):
    keras = keras_of(package)
    x, y = data(seed=0)
    wide = keras.layers.Dense(4 + hvd.rank(), name="wide")
    last = keras.layers.Dense(y.shape[1], name="last")
    model = keras.Sequential([keras.Input(x.shape[1:]), wide, last])
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), "mse")
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        model.fit(x, y, batch_size=2, verbose=0, callbacks=callbacks)
    user_messages.check("models with different layers", raised.value.message)
