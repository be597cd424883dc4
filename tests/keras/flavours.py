"""What the tests of Keras share: both Keras, a small model, and the update that there should be."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from variants import also

import tfhvd as hvd

# What is said to `compile`.
MODES = {
    "graph": {"jit_compile": False},
    "eager": {"run_eagerly": True, "jit_compile": False},
    "compiled": {"jit_compile": True},
}

in_both_keras = pytest.mark.parametrize("package", ["keras", also("tf_keras")])
in_every_way = pytest.mark.parametrize(
    ("package", "mode"),
    [
        ("keras", "graph"),
        *(also("keras", mode) for mode in MODES if mode != "graph"),
        also("tf_keras", "graph"),
    ],
)


def keras_of(package: str) -> Any:
    """Imports a Keras directly, whatever tf.keras is."""
    return importlib.import_module(package)


def set_seed(keras: Any, seed: int) -> None:
    """Seeds everything that draws the weights of models.

    tf_keras before 2.19 asks its own generator for a whole number up to 1e9, a float, which Python
    refuses since 3.12; without that generator it asks Python's, which is seeded as well.
    """
    tf.keras.utils.set_random_seed(seed)
    keras.utils.set_random_seed(seed)
    broken = sys.version_info >= (3, 12) and keras.__version__ in ("2.16.0", "2.17.0", "2.18.0")
    if broken:
        keras.src.backend._SEED_GENERATOR.generator = None


def make_model(keras: Any, seed: int = 0) -> Any:
    """A model with four variables, the same on every rank for the same seed."""
    set_seed(keras, seed)
    layers = keras.layers
    return keras.Sequential(
        [layers.Input((4,)), layers.Dense(3, activation="tanh"), layers.Dense(1)]
    )


def data(seed: int, samples: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """Inputs [samples, 4] and targets [samples, 1]; with seed=rank(), each rank's own."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(samples, 4)).astype("float32")
    return x, np.sum(x**2, axis=1, keepdims=True)


def mean_square(y: Any, prediction: Any) -> tf.Tensor:
    return tf.reduce_mean(tf.square(prediction - y))


def own_gradients(model: Any, x: Any, y: Any) -> list[tf.Tensor]:
    """This rank's gradients."""
    with tf.GradientTape() as tape:
        loss = mean_square(y, model(x, training=True))
    return tape.gradient(loss, model.trainable_variables)


def summed(gradients: list[Any]) -> list[Any]:
    """Gradients summed over the ranks, by the operations alone."""
    return [None if g is None else hvd.allreduce(g, op=hvd.Sum) for g in gradients]


def values(variables: list[Any]) -> list[np.ndarray]:
    return [np.array(v) for v in variables]


def assert_same_on_all_ranks(variables: list[Any]) -> None:
    for number, value in enumerate(values(variables)):
        for rank, other in enumerate(hvd.allgather_object(value)):
            np.testing.assert_array_equal(value, other, err_msg=f"variable {number}, rank {rank}")


def assert_close(actual: list[Any], expected: list[Any], rtol: float = 1e-5) -> None:
    assert len(actual) == len(expected)
    for number, (a, b) in enumerate(zip(values(actual), values(expected))):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-6, err_msg=f"variable {number}")
