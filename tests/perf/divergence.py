"""What it costs to compare the ranks' weights, and with them an eighth of Adam's state.

    tfhvdrun -np 2 python tests/perf/divergence.py [--rounds 4] [--every 1] [--steps 20]

Rank 0 prints two things, for as many weights as ResNet-50 has.

- Of one comparison: how long the training thread takes the values, and how much later the result is
  there, which another thread gets meanwhile. Medians: of the weights alone, and as in `fit`.
- Of a step: how much longer it is in `fit` of ResNet-50 with comparisons than without, as a share.
  Its images are tiny, and one is a batch, so that hardly a step is shorter. Blocks of steps without
  (A) and with (B) take turns, ABBA. With them, every step has one, for one in a hundred steps is
  less than steps differ by chance; what is printed is for one in a hundred.
"""

from __future__ import annotations

import argparse
import statistics
import time

import keras
import numpy as np
import tensorflow as tf

import tfhvd.keras as hvd
from tfhvd.replicas import Comparison

DEFAULT = 100  # of TFHVD_DIVERGENCE_STEPS


class Times(keras.callbacks.Callback):
    """Times the steps after the first ones: as many comparisons begin in them as end."""

    def __init__(self, before: int) -> None:
        super().__init__()
        self._before = before
        self.began = self.ended = 0.0

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        self.ended = time.perf_counter()
        if batch + 1 == self._before:
            self.began = self.ended


def compare(variables: list[tf.Variable]) -> None:
    """Prints what one comparison takes."""
    takes, waits = [], []
    for _ in range(20):
        hvd.barrier()
        began = time.perf_counter()
        comparison = Comparison(variables, "", hvd.global_process_set)
        taken = time.perf_counter()
        assert not comparison.finish("raise")
        waits.append(time.perf_counter() - taken)
        takes.append(taken - began)
    if hvd.rank() == 0:
        print(f"{len(variables)} variables: {1e3 * statistics.median(takes):.1f} ms")
        print(f"beside the next step: {1e3 * statistics.median(waits):.1f} ms", flush=True)


def train(options: argparse.Namespace) -> None:
    """Prints how much longer steps are."""
    keras.utils.set_random_seed(1)
    model = keras.applications.ResNet50(weights=None, input_shape=(32, 32, 3))
    optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.001))
    optimizer.build(model.trainable_variables)
    model.compile(optimizer, "sparse_categorical_crossentropy", jit_compile=False)
    weights, state = model.trainable_variables, optimizer.variables
    compare(weights)
    compare([*weights, *state[: len(state) // 8]])
    every = options.every
    steps = every + options.steps
    x, y = np.zeros([steps, 32, 32, 3], "float32"), np.zeros([steps], "int32")

    def seconds_a_step(compares: bool) -> float:
        times = Times(every)
        check = hvd.callbacks.DivergenceCallback(every if compares else 0, "raise")
        model.fit(x, y, batch_size=1, verbose=0, callbacks=[times, check])
        return (times.ended - times.began) / options.steps

    seconds_a_step(True)
    without, shares = [], []
    for _ in range(options.rounds):
        a, b, b_again, a_again = (seconds_a_step(each) for each in (False, True, True, False))
        without += [a, a_again]
        shares.append((b + b_again - a - a_again) / (a + a_again) * every / DEFAULT)
    if hvd.rank() == 0:
        error = statistics.stdev(shares) / len(shares) ** 0.5
        print(f"a step: {1e3 * statistics.median(without):.0f} ms")
        print(f"with comparisons: {statistics.mean(shares):+.2%} ± {error:.2%} of that", flush=True)


def main() -> None:
    """Times both."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=4, help="of four blocks; at least 2")
    parser.add_argument("--every", type=int, default=1, help="steps from comparison to comparison")
    parser.add_argument("--steps", type=int, default=20, help="of a block; a multiple of --every")
    options = parser.parse_args()
    if options.steps % options.every or options.rounds < 2:
        parser.error("Expected: --steps a multiple of --every, and --rounds 2 or more.")
    hvd.init()
    train(options)


if __name__ == "__main__":
    main()
