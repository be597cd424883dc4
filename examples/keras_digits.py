"""Trains a small convolutional network on scanned digits with Keras' `fit`, on any number of ranks.

    tfhvdrun -np 2 python examples/keras_digits.py

The data are scikit-learn's 1,797 scans of handwritten digits, which come with it.
"""

import argparse
import math
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


class Shard(keras.utils.PyDataset):
    """This rank's part of some data: every sample is in one rank's part, once.

    Ranks update together, so that all must have as many batches, whatever the number of samples is.
    """

    def __init__(self, x, y, shuffle=False):
        super().__init__()
        self.x, self.y = x[hvd.rank() :: hvd.size()], y[hvd.rank() :: hvd.size()]
        self.batches = math.ceil(len(x) / (BATCH * hvd.size()))
        self.random = np.random.default_rng(hvd.rank()) if shuffle else None
        self.order = np.arange(len(self.x))
        self.on_epoch_end()

    def __len__(self):
        return self.batches

    def __getitem__(self, batch):
        rows = np.array_split(self.order, self.batches)[batch]
        return self.x[rows], self.y[rows]

    def on_epoch_end(self):
        """Shuffles, when Keras has seen all."""
        if self.random is not None:
            self.random.shuffle(self.order)


def load_data():
    """Gives images of 8 x 8 points and digits, divided in the same way on every rank."""
    digits = load_digits()
    x, y = (digits.images / 16).astype("float32")[..., np.newaxis], digits.target
    order = np.random.default_rng(0).permutation(len(x))
    train, test = order[:1437], order[1437:]
    return x[train], y[train], x[test], y[test]


def make_model():
    """Makes the network."""
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(16, 3, padding="same", activation="relu"),
            keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dropout(0.25),
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
    train, test = Shard(x_train, y_train, shuffle=True), Shard(x_test, y_test)

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
    ]
    verbose = 1 if hvd.rank() == 0 else 0
    model.fit(train, validation_data=test, epochs=EPOCHS, callbacks=callbacks, verbose=verbose)

    correct = np.sum(np.argmax(model.predict(test.x, verbose=0), axis=-1) == test.y)
    accuracy = int(hvd.allreduce(correct, op=hvd.Sum)) / len(x_test)
    if hvd.rank() == 0:
        with tempfile.TemporaryDirectory() as folder:
            model.save(output or Path(folder) / "digits.keras")
        print(f"test accuracy of {hvd.size()} rank(s): {accuracy:.4f}")
    return 0 if accuracy >= 0.97 else 1


if __name__ == "__main__":
    sys.exit(main())
