"""Trains on scanned digits, and shows the metrics of all ranks in TensorBoard.

    tfhvdrun -np 2 python examples/tensor_board.py --logs logs
    tensorboard --logdir logs

Needs the package tensorboard. The callbacks are on all ranks, and write on rank 0.
"""

import argparse
import sys
from pathlib import Path

import keras
import numpy as np
from sklearn.datasets import load_digits

import tfhvd.keras as hvd

BATCH = 32  # samples per rank and step
EPOCHS = 12


def load_data():
    """Gives images of 64 points and digits, divided in the same way on every rank."""
    x, y = load_digits(return_X_y=True)
    x = (x / 16).astype("float32")
    order = np.random.default_rng(0).permutation(len(x))
    train, test = order[:1437], order[1437:]
    return (x[train], y[train]), (x[test], y[test])


def main():
    """Trains, and returns 0 if the model can read."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--logs", type=Path, default=Path("logs"), help="where rank 0 writes")
    logs = parser.parse_args().logs

    hvd.init()
    train, test = load_data()
    x_train, y_train = hvd.shard(train)
    x_test, y_test = hvd.shard(test)
    model = keras.Sequential(
        [
            keras.Input((64,)),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10),
        ]
    )
    learning_rate = hvd.scaled_lr(1e-3, "sqrt")
    model.compile(
        hvd.DistributedOptimizer(keras.optimizers.Adam(learning_rate)),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    model.fit(
        x_train,
        y_train,
        batch_size=BATCH,
        epochs=EPOCHS,
        validation_data=(x_test, y_test),
        callbacks=[
            hvd.callbacks.BroadcastGlobalVariablesCallback(0),
            hvd.callbacks.MetricAverageCallback(),  # before those that write metrics
            hvd.callbacks.LearningRateWarmupCallback(learning_rate, warmup_epochs=3),
            hvd.callbacks.TensorBoard(logs, histogram_freq=4),
        ],
    )

    correct = np.sum(np.argmax(model.predict(x_test), axis=-1) == y_test)
    accuracy = int(hvd.allreduce(correct, op=hvd.Sum)) / len(test[1])
    if hvd.rank() == 0:
        print(f"test accuracy of {hvd.size()} rank(s): {accuracy:.4f}")
    return 0 if accuracy >= 0.93 else 1


if __name__ == "__main__":
    sys.exit(main())
