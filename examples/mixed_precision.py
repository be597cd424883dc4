"""Trains on scanned digits in half precision, with loss scaling; gradients travel so, too.

tfhvdrun -np 2 python examples/mixed_precision.py
"""

import sys

import keras
import numpy as np
from sklearn.datasets import load_digits

import tfhvd.keras as hvd

BATCH = 32  # samples per rank and step
EPOCHS = 15


def load_data():
    """Gives images of 64 points and digits, divided in the same way on every rank."""
    x, y = load_digits(return_X_y=True)
    x = (x / 16).astype("float32")
    order = np.random.default_rng(0).permutation(len(x))
    train, test = order[:1437], order[1437:]
    return (x[train], y[train]), (x[test], y[test])


def main():
    """Trains, and returns 0 if the model can read."""
    hvd.init()
    train, test = load_data()
    x_train, y_train = hvd.shard(train)
    x_test, y_test = hvd.shard(test)

    # Layers compute in float16, and keep their weights in float32. On GPUs or TPUs that know it,
    # "mixed_bfloat16" needs no loss scaling.
    keras.mixed_precision.set_global_policy("mixed_float16")
    model = keras.Sequential(
        [
            keras.Input((64,)),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10, dtype="float32"),  # the loss is computed in full precision
        ]
    )
    # The distributed optimizer is inside: the scale is taken off before ranks' gradients meet, and
    # where one rank's are not finite, all ranks skip the update.
    optimizer = keras.optimizers.LossScaleOptimizer(
        hvd.DistributedOptimizer(
            keras.optimizers.Adam(hvd.scaled_lr(2e-3, "sqrt")), compression=hvd.Compression.fp16
        )
    )
    model.compile(
        optimizer,
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
    ]
    model.fit(x_train, y_train, batch_size=BATCH, epochs=EPOCHS, callbacks=callbacks)

    correct = np.sum(np.argmax(model.predict(x_test), axis=-1) == y_test)
    accuracy = int(hvd.allreduce(correct, op=hvd.Sum)) / len(test[1])
    if hvd.rank() == 0:
        print(f"loss scale: {float(optimizer.dynamic_scale):g}")
        print(f"test accuracy of {hvd.size()} rank(s) in half precision: {accuracy:.4f}")
    return 0 if accuracy >= 0.95 else 1


if __name__ == "__main__":
    sys.exit(main())
