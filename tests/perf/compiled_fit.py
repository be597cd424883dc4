"""Times `fit` of examples/keras_digits.py, compiled with XLA and not, with tfhvd and without.

    tfhvdrun -np 2 python tests/perf/compiled_fit.py [--rounds 10] [--threads 1] [--dropout 0.25]

The four take turns. Without tfhvd every rank trains a model of its own with Keras' optimizer, at
the same time as the others: so both share the machine in the same way, and what an epoch takes
longer with tfhvd is its part. Medians, in milliseconds an epoch, of the rank that was slowest; the
first epochs, in which functions are made and compiled, are left out.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

import tfhvd.keras as hvd

sys.path.append(str(Path(__file__).resolve().parents[2] / "examples"))
import keras_digits

FIRST = 2  # epochs: one makes the functions, the other meets the memory as it stays


def make(distributed: bool, compiled: bool | str, dropout: float) -> Any:
    """Makes the example's model, with a layer of `Dropout` before the dense ones if wanted."""
    keras.utils.set_random_seed(1)
    model = keras_digits.make_model()
    if dropout:
        *convolutions, wide, last = model.layers
        layers = [*convolutions, keras.layers.Dropout(dropout), wide, last]
        model = keras.Sequential([keras.Input(model.input_shape[1:]), *layers])
    optimizer = keras.optimizers.Adam(keras_digits.LEARNING_RATE)
    model.compile(
        hvd.DistributedOptimizer(optimizer) if distributed else optimizer,
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        jit_compile=compiled,
    )
    return model


def epoch(model: Any, x: Any, y: Any) -> float:
    """Trains for one epoch; gives the milliseconds that the slowest rank took."""
    hvd.barrier()
    began = time.perf_counter()
    model.fit(x, y, batch_size=keras_digits.BATCH, epochs=1, verbose=0)
    took = tf.constant(1e3 * (time.perf_counter() - began), tf.float64)
    return float(hvd.allreduce(took, op=hvd.Max, name="took"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--threads", type=int, default=1, help="of each rank, to compute")
    parser.add_argument("--dropout", type=float, default=0.0)
    arguments = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(arguments.threads)
    os.environ.setdefault("TFHVD_CHECK_SYNC", "off")  # of the model alone
    hvd.init()
    x, y, _, _ = keras_digits.load_data()
    # As many batches on every rank: what `fit` does where they are unequal is another question.
    samples = len(x) // (hvd.size() * keras_digits.BATCH) * keras_digits.BATCH
    own = slice(hvd.rank() * samples, (hvd.rank() + 1) * samples)
    models = {
        (title, distributed): make(distributed, compiled, arguments.dropout)
        for title, compiled in (("uncompiled", False), ("compiled", True))
        for distributed in (False, True)
    }
    times: dict[Any, list[float]] = {key: [] for key in models}
    for number in range(arguments.rounds + FIRST):
        for key, model in models.items():
            milliseconds = epoch(model, x[own], y[own])
            if number >= FIRST:
                times[key].append(milliseconds)
    if hvd.rank() == 0:
        steps = samples // keras_digits.BATCH
        choice = make(True, "auto", arguments.dropout).jit_compile
        print(f"Keras' own choice here: jit_compile={choice}")
        print(f"| ms an epoch of {steps} steps | alone | with tfhvd | longer by | ratio |")
        print("|---|---|---|---|---|")
        for title in ("uncompiled", "compiled"):
            alone, together = times[title, False], times[title, True]
            # Neighbours in time: their difference sees the same machine.
            longer = statistics.median(t - a for t, a in zip(together, alone))
            ratio = statistics.median(t / a for t, a in zip(together, alone))
            medians = [statistics.median(alone), statistics.median(together)]
            cells = " | ".join(f"{cell:.1f}" for cell in (*medians, longer))
            print(f"| {title} | {cells} | {ratio:.2f} |", flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
