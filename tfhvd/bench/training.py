"""Throughput of `model.fit` on a small network: together with the other ranks, and alone.

It works with Keras 3 and with the Keras of older TensorFlow, so that it can measure Horovod, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tfhvd.bench.measure import Ranks
from tfhvd.bench.metrics import Times

BATCH = 64
_STEPS = 12  # the steps of one fit; the first step is not counted
_SEED = 7

ALONE = "alone"


class _Clock:
    """The times at which the steps of a fit end; `callback` connects it with either Keras."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def callback(self, keras: Any) -> Any:
        ends = self.ends

        class Callback(keras.callbacks.Callback):
            """A callback that notes the end of each step."""

            def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
                ends.append(time.perf_counter())

        return Callback()

    def steps(self) -> list[float]:
        """Returns the seconds of each step, except the first."""
        return [after - before for before, after in zip(self.ends, self.ends[1:])]


def _network(keras: Any, optimizer: Any) -> Any:
    """Returns the model of workloads.tiny, compiled with an optimizer."""
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            layers.Conv2D(32, 3, activation="relu"),
            layers.Conv2D(64, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(270, activation="relu"),
            layers.Dense(10),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    # Neither subject is compiled with XLA, which would be another comparison.
    model.compile(optimizer, loss, jit_compile=False)
    return model


def measure_training(
    name: str, distribute: Callable[[Any], Any], rounds: int, ranks: Ranks
) -> dict[str, Times]:
    """Trains the network alone and together, in turn.

    Alone means that every rank trains a separate model at the same time, like separate processes.

    Args:
        name: the name of the distributed subject.
        distribute: makes a Keras optimizer average gradients over the ranks.
        rounds: how often each of the two subjects has a turn of a few steps.
        ranks: the ranks that measure.

    Returns:
        The time of a step of BATCH images over all ranks, alone (ALONE) and together (`name`).
    """
    import numpy as np
    import tensorflow as tf

    keras = tf.keras
    keras.utils.set_random_seed(_SEED)
    random = np.random.default_rng(_SEED + ranks.rank)
    images = random.random((BATCH * _STEPS, 28, 28, 1), np.float32)
    labels = random.integers(0, 10, BATCH * _STEPS)
    models = {
        ALONE: _network(keras, keras.optimizers.SGD(0.01)),
        name: _network(keras, distribute(keras.optimizers.SGD(0.01))),
    }

    def train(model: Any) -> list[float]:
        clock = _Clock()
        model.fit(
            images,
            labels,
            batch_size=BATCH,
            epochs=1,
            shuffle=False,
            verbose=0,
            callbacks=[clock.callback(keras)],
        )
        return clock.steps()

    seconds: dict[str, list[float]] = {subject: [] for subject in models}
    for turn in range(rounds + 1):
        for subject, model in models.items():
            ranks.gather([0.0])
            steps = train(model)
            if turn > 0:  # the first turn traces and warms up
                seconds[subject] += steps
    return {
        subject: Times.of([t for of_rank in ranks.gather(own) for t in of_rank])
        for subject, own in seconds.items()
    }
