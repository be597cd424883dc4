"""Trains on scanned digits with a loop of one's own: a gradient tape under `tf.function`.

tfhvdrun -np 2 python examples/custom_loop.py
"""

import sys

import keras
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

import tfhvd as hvd

BATCH = 64  # samples of all ranks together: 1, 2 and 4 ranks train alike
EPOCHS = 30


def load_data():
    """Gives images of 64 points and digits, divided in the same way on every rank."""
    x, y = load_digits(return_X_y=True)
    x = (x / 16).astype("float32")
    order = np.random.default_rng(0).permutation(len(x))
    train, test = order[:1408], order[1408:]  # 22 batches
    return x[train], y[train], x[test], y[test]


def main():
    """Trains, and returns 0 if the model can read."""
    hvd.init()
    x_train, y_train, x_test, y_test = load_data()
    model = keras.Sequential(
        [
            keras.Input((64,)),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10),
        ]
    )
    optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def step(x, y):
        with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
            loss = loss_of(y, model(x, training=True))
        # The gradients are averages over the ranks, so that all ranks make the same update.
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    hvd.broadcast_variables(model.variables, root_rank=0)
    for epoch in range(EPOCHS):
        order = np.random.default_rng(epoch).permutation(len(x_train))  # the same on every rank
        for batch in order.reshape(-1, BATCH):
            rows = batch[hvd.rank() :: hvd.size()]  # every sample on one rank, once
            loss = step(tf.constant(x_train[rows]), tf.constant(y_train[rows]))
        loss = hvd.allreduce(loss)
        if hvd.rank() == 0:
            print(f"epoch {epoch + 1}: loss of the last batch {float(loss):.4f}")

    rows = slice(hvd.rank(), None, hvd.size())
    correct = np.sum(np.argmax(model(x_test[rows]), axis=-1) == y_test[rows])
    accuracy = int(hvd.allreduce(correct, op=hvd.Sum)) / len(x_test)
    if hvd.rank() == 0:
        print(f"test accuracy of {hvd.size()} rank(s): {accuracy:.4f}")
    return 0 if accuracy >= 0.95 else 1


if __name__ == "__main__":
    sys.exit(main())
