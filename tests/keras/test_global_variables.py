"""Keras in the style of TensorFlow 1."""

import numpy as np
import pytest
import tensorflow as tf
from flavours import assert_same_on_all_ranks, keras_of

import tfhvd.keras as hvd

pytestmark = pytest.mark.ranks(1, 2)

v1 = tf.compat.v1


@pytest.mark.parametrize("own_session", [True, False])
def test_all_ranks_have_the_weights_of_one(own_session):
    keras, root = keras_of("tf_keras"), hvd.size() - 1
    with tf.Graph().as_default() as graph:
        # Random ones may be the same on all ranks: a test before this one may have set their seed.
        own = keras.initializers.Constant(hvd.rank() + 1.0)
        layers = [keras.layers.Input((4,)), keras.layers.Dense(3, kernel_initializer=own)]
        if own_session:
            with v1.Session(graph=graph):
                model = keras.Sequential(layers)
                before = model.get_weights()
                hvd.broadcast_global_variables(root)
                after = model.get_weights()
        else:
            model = keras.Sequential(layers)
            before = model.get_weights()
            hvd.broadcast_global_variables(root)
            after = model.get_weights()
    if hvd.rank() == root:
        for mine, other in zip(after, before):
            np.testing.assert_array_equal(mine, other)
    assert_same_on_all_ranks(after)
    assert hvd.size() == 1 or (hvd.rank() == root) == np.array_equal(before[0], after[0])


def test_where_operations_run_eagerly():
    with pytest.raises(RuntimeError, match=r"call hvd.broadcast_variables\(model.variables"):
        hvd.broadcast_global_variables(0)
