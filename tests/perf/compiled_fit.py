"""Times `fit` of examples/keras_digits.py compiled with XLA beside uncompiled, in turn.

    tfhvdrun -np 2 python tests/perf/compiled_fit.py [--rounds 10]

Prints the median time of an epoch of each; an epoch takes as long as on the slowest rank.
"""

from __future__ import annotations

import argparse
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


def make(compiled: bool) -> Any:
    """Makes the example's model."""
    keras.utils.set_random_seed(1)
    model = keras_digits.make_model()
    model.compile(
        hvd.DistributedOptimizer(keras.optimizers.Adam(keras_digits.LEARNING_RATE)),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        jit_compile=compiled,
    )
    return model


def epoch(model: Any, data: Any) -> float:
    """Trains for one epoch; gives the seconds that the slowest rank took."""
    hvd.barrier()
    began = time.perf_counter()
    model.fit(data, epochs=1, verbose=0)
    took = tf.constant(time.perf_counter() - began, tf.float64)
    return float(hvd.allreduce(took, op=hvd.Max, name="took"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    arguments = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    hvd.init()
    x, y, _, _ = keras_digits.load_data()
    data = keras_digits.Shard(x, y, shuffle=True)
    models = {"uncompiled": make(compiled=False), "compiled": make(compiled=True)}
    times: dict[str, list[float]] = {name: [] for name in models}
    for number in range(arguments.rounds + 2):
        for name, model in models.items():
            seconds = epoch(model, data)
            if (
                number >= 2
            ):  # The first makes the function, the second meets the memory as it stays.
                times[name].append(1e3 * seconds)
    if hvd.rank() == 0:
        for name, values in times.items():
            print(f"{name}: {statistics.median(values):.1f} ms an epoch", flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
