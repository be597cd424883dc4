"""Trains a small transformer that reads scanned digits row by row, on any number of ranks.

tfhvdrun -np 2 python examples/transformer.py
"""

import sys

import keras
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

import tfhvd.keras as hvd

BATCH = 64  # samples of all ranks together: jobs of any size train alike
EPOCHS = 20
WIDTH = 32


def load_data():
    """Gives 8 rows of 8 points for each digit, divided in the same way on every rank."""
    digits = load_digits()
    x, y = (digits.images / 16).astype("float32"), digits.target
    order = np.random.default_rng(0).permutation(len(x))
    train, test = order[:1437], order[1437:]
    return (x[train], y[train]), (x[test], y[test])


@keras.saving.register_keras_serializable()
class Positions(keras.layers.Layer):
    """Adds to each element of a sequence a vector of its place."""

    def build(self, shape):
        self.table = self.add_weight(shape=shape[1:], initializer="random_normal", name="table")

    def call(self, x):
        return x + self.table


def block(x):
    """Attention between the elements, then a layer for each of them."""
    normal = keras.layers.LayerNormalization()(x)
    x = x + keras.layers.MultiHeadAttention(num_heads=4, key_dim=WIDTH // 4)(normal, normal)
    normal = keras.layers.LayerNormalization()(x)
    wide = keras.layers.Dense(2 * WIDTH, activation="gelu")(normal)
    return x + keras.layers.Dense(WIDTH)(wide)


def make_model():
    rows = keras.Input((8, 8))
    x = Positions()(keras.layers.Dense(WIDTH)(rows))
    for _ in range(2):
        x = block(x)
    x = keras.layers.GlobalAveragePooling1D()(keras.layers.LayerNormalization()(x))
    return keras.Model(rows, keras.layers.Dense(10)(x))


def main():
    """Trains, and returns 0 if the model can read."""
    hvd.init()
    train, test = load_data()
    # Samples are dealt out anew in each epoch; ranks may have unequal parts.
    dataset = hvd.shard(tf.data.Dataset.from_tensor_slices(train), shuffle=True)
    dataset = dataset.batch(BATCH // hvd.size()).prefetch(tf.data.AUTOTUNE)
    steps = EPOCHS * -(-len(train[1]) // BATCH)

    # A rate that rises and falls, the same on all ranks: it goes by the steps, which all make.
    rate = keras.optimizers.schedules.CosineDecay(
        0.0, decay_steps=steps, warmup_target=4e-3, warmup_steps=steps // 10
    )
    model = make_model()
    model.compile(
        hvd.DistributedOptimizer(
            keras.optimizers.AdamW(rate, weight_decay=1e-3, global_clipnorm=1.0)
        ),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
    ]
    model.fit(dataset, epochs=EPOCHS, callbacks=callbacks)

    x_test, y_test = hvd.shard(test)
    correct = np.sum(np.argmax(model.predict(x_test), axis=-1) == y_test)
    accuracy = int(hvd.allreduce(correct, op=hvd.Sum)) / len(test[1])
    if hvd.rank() == 0:
        print(f"test accuracy of {hvd.size()} rank(s): {accuracy:.4f}")
    return 0 if accuracy >= 0.93 else 1


if __name__ == "__main__":
    sys.exit(main())
