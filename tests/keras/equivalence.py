"""Ranks are one: STEPS steps on n ranks equal as many on 1 rank with the joined batch.

The one rank is plain Keras in a plain loop, on every rank beside the distributed training.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from flavours import assert_same_on_all_ranks, keras_of, make_model, mean_square, values

import tfhvd
import tfhvd.keras as hvd

STEPS = 20
BATCH = 8  # samples per rank
MAKE = {
    "sgd": lambda o: o.SGD(0.05, momentum=0.9),
    "adam": lambda o: o.Adam(0.01),
}
CLOSE = {"sgd": 1e-6, "adam": 1e-5}  # of the largest weight

# From a Keras, an optimizer's kind, this rank's samples and the device to reduce on to a model.
Train = Callable[[Any, str, np.ndarray, np.ndarray, str], Any]


def check(package: str, train: Train, kind: str, device: str = "") -> None:
    """Trains both ways and compares the weights.

    Args:
        package: the Keras to use.
        train: one of the functions below.
        kind: the optimizer, of MAKE.
        device: where gradients are reduced, "" for where they are.
    """
    keras = keras_of(package)
    expected = values(one_rank(keras, kind).trainable_variables)
    begun = values(make_model(keras).trainable_variables)
    x, y = joined_batches()
    model = train(keras, kind, own(x), own(y), device)
    assert_same_on_all_ranks(model.trainable_variables)
    largest = max(np.abs(weight).max() for weight in expected)
    for actual, reference, start in zip(values(model.trainable_variables), expected, begun):
        assert np.abs(actual - reference).max() <= CLOSE[kind] * largest
        assert np.abs(reference - start).max() > 0.01 * largest  # something was learned


def joined_batches() -> tuple[np.ndarray, np.ndarray]:
    """[STEPS, ranks, BATCH, ...]: what all ranks see."""
    random = np.random.default_rng(5)
    x = random.normal(size=(STEPS, hvd.size(), BATCH, 4)).astype("float32")
    return x, np.sum(x**2, axis=-1, keepdims=True)


def one_rank(keras: Any, kind: str) -> Any:
    """Trains on the joined batches, with Keras alone."""
    model, optimizer = make_model(keras), MAKE[kind](keras.optimizers)

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = mean_square(y, model(x, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))

    x, y = joined_batches()
    for number in range(STEPS):
        step(x[number].reshape(-1, 4), y[number].reshape(-1, 1))
    return model


def own(array: np.ndarray) -> np.ndarray:
    """This rank's samples of all steps, in order."""
    return array[:, hvd.rank()].reshape(STEPS * BATCH, -1)


def fit_compiled(keras: Any, kind: str, x: np.ndarray, y: np.ndarray, device: str) -> Any:
    return fit(keras, kind, x, y, device, jit_compile=True)


def fit(keras: Any, kind: str, x: np.ndarray, y: np.ndarray, device: str, **arguments: Any) -> Any:
    # Rank 0's weights are the reference's; the others begin elsewhere, and are brought there.
    model = make_model(keras, seed=hvd.rank())
    optimizer = hvd.DistributedOptimizer(MAKE[kind](keras.optimizers), device_dense=device)
    model.compile(optimizer, keras.losses.MeanSquaredError(), **arguments)
    model.fit(
        x,
        y,
        batch_size=BATCH,
        shuffle=False,
        verbose=0,
        callbacks=[hvd.BroadcastGlobalVariablesCallback(0)],
    )
    return model


def loop_with_optimizer(keras: Any, kind: str, x: np.ndarray, y: np.ndarray, device: str) -> Any:
    optimizer = hvd.DistributedOptimizer(MAKE[kind](keras.optimizers), device_dense=device)
    return loop(keras, x, y, tf.GradientTape, optimizer)


def compiled_loop_with_tape(
    keras: Any, kind: str, x: np.ndarray, y: np.ndarray, device: str
) -> Any:
    return loop_with_tape(keras, kind, x, y, device, jit_compile=True)


def loop_with_tape(
    keras: Any, kind: str, x: np.ndarray, y: np.ndarray, device: str, **arguments: Any
) -> Any:
    def tape() -> Any:
        return tfhvd.DistributedGradientTape(tf.GradientTape(), device_dense=device)

    return loop(keras, x, y, tape, MAKE[kind](keras.optimizers), **arguments)


def loop(
    keras: Any,
    x: np.ndarray,
    y: np.ndarray,
    make_tape: Callable[[], Any],
    optimizer: Any,
    **arguments: Any,
) -> Any:
    model = make_model(keras, seed=hvd.rank())
    tfhvd.broadcast_variables(model.variables, root_rank=0)

    @tf.function(**arguments)
    def step(x, y):
        with make_tape() as tape:
            loss = mean_square(y, model(x, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))

    for start in range(0, len(x), BATCH):
        step(x[start : start + BATCH], y[start : start + BATCH])
    return model
