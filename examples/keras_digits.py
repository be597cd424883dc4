"""Trains a small convolutional network on scanned digits with Keras' `fit`, on any number of ranks.

    tfhvdrun -np 2 python examples/keras_digits.py

The data are scikit-learn's 1,797 scans of handwritten digits, which come with it.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import keras
import numpy as np
from sklearn.datasets import load_digits

import tfhvd.keras as hvd

BATCH = 32  # samples per rank and step
EPOCHS = 15
LEARNING_RATE = 1e-3  # of one rank


def load_data():
    """Gives images of 8 x 8 points and digits, divided in the same way on every rank."""
    digits = load_digits()
    x, y = (digits.images / 16).astype("float32")[..., np.newaxis], digits.target
    order = np.random.default_rng(0).permutation(len(x))
    train, test = order[:1437], order[1437:]
    return x[train], y[train], x[test], y[test]


def make_model():
    """Makes the network: nothing in it is slow where XLA compiles it (on CPUs, `Dropout` is)."""
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
            keras.layers.Conv2D(64, 3, padding="same", strides=2, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10),
        ]
    )


def main():
    """Trains, and returns 0 if the model can read."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, help="where rank 0 saves the model")
    output = parser.parse_args().output

    hvd.init()
    x_train, y_train, x_test, y_test = load_data()
    # Every sample is on one rank, once. Ranks may have unequal parts, and so unequal batches.
    part = slice(hvd.rank(), None, hvd.size())

    # Each step sees size() times as many samples, and can go so much further.
    learning_rate = LEARNING_RATE * hvd.size()
    model = make_model()
    model.compile(
        hvd.DistributedOptimizer(keras.optimizers.Adam(learning_rate)),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
        hvd.callbacks.LearningRateWarmupCallback(learning_rate, warmup_epochs=3, verbose=1),
        # Smaller steps at the end, so that the last few do not decide how well it reads.
        hvd.callbacks.LearningRateScheduleCallback(learning_rate, 0.1, start_epoch=EPOCHS - 3),
    ]
    model.fit(
        x_train[part],
        y_train[part],
        batch_size=BATCH,
        epochs=EPOCHS,
        validation_data=(x_test[part], y_test[part]),
        callbacks=callbacks,
    )

    correct = np.sum(np.argmax(model.predict(x_test[part], verbose=0), axis=-1) == y_test[part])
    accuracy = int(hvd.allreduce(correct, op=hvd.Sum)) / len(x_test)
    if hvd.rank() == 0:
        with tempfile.TemporaryDirectory() as folder:
            model.save(output or Path(folder) / "digits.keras")
        print(f"test accuracy of {hvd.size()} rank(s): {accuracy:.4f}")
    return 0 if accuracy >= 0.97 else 1


if __name__ == "__main__":
    sys.exit(main())
