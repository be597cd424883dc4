"""Trains on scanned digits, and continues where an earlier job was ended, or was stopped.

    tfhvdrun -np 2 python examples/checkpoint_and_resume.py --folder state --epochs 6
    tfhvdrun -np 4 python examples/checkpoint_and_resume.py --folder state --epochs 12

The second job may have another number of ranks: each step trains the same samples. It continues at
the last checkpoint of the first one, which saves before it ends if it gets SIGTERM.
"""

import argparse
import sys
from pathlib import Path

import keras
import numpy as np
from sklearn.datasets import load_digits

import tfhvd.keras as hvd

BATCH = 64  # samples of all ranks together


def load_data():
    """Gives images of 64 points and digits, divided in the same way on every rank."""
    x, y = load_digits(return_X_y=True)
    x = (x / 16).astype("float32")
    order = np.random.default_rng(0).permutation(len(x))
    train, test = order[:1437], order[1437:]
    return (x[train], y[train]), (x[test], y[test])


class Report(keras.callbacks.Callback):
    """Says where this job begins."""

    def __init__(self):
        super().__init__()
        self.first = None

    def on_epoch_begin(self, epoch, logs=None):
        if self.first is None:
            self.first = epoch
            if hvd.rank() == 0:
                print(f"begins with epoch {epoch + 1}")


def main():
    """Trains, and returns 0 if the model can read."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True, help="where the state is kept")
    parser.add_argument("--epochs", type=int, default=12, help="of all jobs together")
    arguments = parser.parse_args()

    hvd.init()
    train, test = load_data()
    # Each step takes the next samples of one order, whatever the number of ranks.
    batches = hvd.data.Batches(train, BATCH, shuffle=True, seed=1)
    x_test, y_test = hvd.shard(test)
    model = keras.Sequential(
        [
            keras.Input((64,)),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10),
        ]
    )
    model.compile(
        hvd.DistributedOptimizer(keras.optimizers.Adam(3e-3)),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    # The best model, and a table of all epochs: on rank 0, whoever else has them.
    best = hvd.callbacks.ModelCheckpoint(
        str(arguments.folder / "best.keras"), "val_loss", save_best_only=True
    )
    if hvd.rank() == 0:
        arguments.folder.mkdir(parents=True, exist_ok=True)
    # All ranks write the checkpoints, beside the training: weights, the optimizer's state, the
    # position in the data, and how good the best model was.
    checkpoint = hvd.callbacks.Checkpoint(
        arguments.folder / "checkpoints", every="5 min", also={"best": best}
    )
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
        best,
        hvd.callbacks.CSVLogger(str(arguments.folder / "training.csv"), append=True),
        Report(),
        checkpoint,
    ]
    model.fit(
        batches,
        epochs=arguments.epochs,
        validation_data=(x_test, y_test),
        callbacks=callbacks,
    )

    correct = np.sum(np.argmax(model.predict(x_test), axis=-1) == y_test)
    accuracy = int(hvd.allreduce(correct, op=hvd.Sum)) / len(test[1])
    if hvd.rank() == 0:
        print(f"test accuracy of {hvd.size()} rank(s): {accuracy:.4f}")
    return 0 if accuracy >= 0.9 else 1


if __name__ == "__main__":
    sys.exit(main())
