"""Trains on scanned digits with legacy Keras (tf_keras): the same tfhvd, the same script.

    tfhvdrun -np 2 python examples/tf_keras_digits.py

Needs the package tf_keras. Setting TF_USE_LEGACY_KERAS makes `tf.keras` mean it.
"""

import os

os.environ["TF_USE_LEGACY_KERAS"] = "1"  # before TensorFlow is imported

import sys

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

import tfhvd.keras as hvd

BATCH = 32  # samples per rank and step
EPOCHS = 20
LEARNING_RATE = 0.02  # of one rank


def load_data():
    """Gives images of 64 points and digits, divided in the same way on every rank."""
    x, y = load_digits(return_X_y=True)
    x = (x / 16).astype("float32")
    order = np.random.default_rng(0).permutation(len(x))
    train, test = order[:1437], order[1437:]  # ranks may have unequal parts of them
    return x[train], y[train], x[test], y[test]


def main():
    """Trains, and returns 0 if the model can read."""
    hvd.init()
    x_train, y_train, x_test, y_test = load_data()
    part = slice(hvd.rank(), None, hvd.size())  # every sample on one rank, once

    learning_rate = LEARNING_RATE * hvd.size()
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Dense(64, activation="relu", input_shape=(64,)),
            tf.keras.layers.Dense(10),
        ]
    )
    model.compile(
        hvd.DistributedOptimizer(tf.keras.optimizers.SGD(learning_rate, momentum=0.9)),
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    model.fit(
        x_train[part],
        y_train[part],
        batch_size=BATCH,
        epochs=EPOCHS,
        callbacks=[
            hvd.callbacks.BroadcastGlobalVariablesCallback(0),
            hvd.callbacks.MetricAverageCallback(),
            hvd.callbacks.LearningRateWarmupCallback(learning_rate, warmup_epochs=3),
            # Smaller steps at the end, so that the last few do not decide how well it reads.
            hvd.callbacks.LearningRateScheduleCallback(learning_rate, 0.1, start_epoch=EPOCHS - 5),
        ],
        verbose=2 if hvd.rank() == 0 else 0,
    )

    correct = np.sum(np.argmax(model.predict(x_test[part], verbose=0), axis=-1) == y_test[part])
    accuracy = int(hvd.allreduce(correct, op=hvd.Sum)) / len(x_test)
    if hvd.rank() == 0:
        print(f"test accuracy of {hvd.size()} rank(s) with tf_keras: {accuracy:.4f}")
    return 0 if accuracy >= 0.95 else 1


if __name__ == "__main__":
    sys.exit(main())
