"""What a program does after it has switched on a mode: each collective, gradients, `fit`, a loop.

    tfhvdrun -np 2 python tests/keras/mode_program.py MODE

MODES has the modes; WITHOUT_KERAS is for those in which plain Keras fails by itself.
"""

from __future__ import annotations

import locale
import sys
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tfhvd as hvd
import tfhvd.keras as hvd_keras


def _numpy(conversion: str, prefer_float32: bool = False) -> Callable[[], None]:
    enable = tf.experimental.numpy.experimental_enable_numpy_behavior
    return lambda: enable(prefer_float32, dtype_conversion_mode=conversion)


def _deterministic() -> None:
    keras.utils.set_random_seed(3)
    tf.config.experimental.enable_op_determinism()


def _whole_tracebacks() -> None:
    tf.debugging.disable_traceback_filtering()
    keras.config.disable_traceback_filtering()


MODES: Mapping[str, Callable[[], object]] = {
    "numpy": _numpy("legacy"),
    "numpy, off": _numpy("off"),
    "numpy, all": _numpy("all"),
    "numpy, safe, float32": _numpy("safe", True),
    "float64": lambda: keras.backend.set_floatx("float64"),
    "float16": lambda: keras.backend.set_floatx("float16"),
    "bfloat16": lambda: keras.backend.set_floatx("bfloat16"),
    "mixed_bfloat16": lambda: keras.mixed_precision.set_global_policy("mixed_bfloat16"),
    "deterministic": _deterministic,
    "functions run eagerly": lambda: tf.config.run_functions_eagerly(True),
    "jit": lambda: tf.config.optimizer.set_jit(True),
    "whole tracebacks": _whole_tracebacks,
    "hard placement": lambda: tf.config.set_soft_device_placement(False),
    "numerics are checked": tf.debugging.enable_check_numerics,
    "the locale of LC_ALL": lambda: locale.setlocale(locale.LC_ALL, ""),
}
# Plain Keras fails by itself in these (TensorFlow 2.21, Keras 3.15).
WITHOUT_KERAS = ("numpy, all", "numpy, safe, float32")


def each_collective(x: tf.Tensor) -> dict[str, Any]:
    """Calls all of them."""
    rows = tf.IndexedSlices(x, tf.constant([0, 1, 2, 3]), tf.constant([4, 2]))
    return {
        "mean": hvd.allreduce(x),
        "half": hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5),
        "group": hvd.grouped_allreduce([x, x])[1],
        "adasum": hvd.allreduce(x, op=hvd.Adasum),
        "smallest": hvd.allreduce(x, op=hvd.Min),
        "rows": tf.convert_to_tensor(hvd.allreduce(rows)),
        "large": hvd.allreduce(tf.constant(np.array([2**62, -7], np.int64))),
        "gathered": hvd.allgather(x),
        "gathered group": hvd.grouped_allgather([x, x])[1],
        "sparse": tf.sparse.to_dense(hvd.allgather(tf.sparse.from_dense(x))),
        "root": hvd.broadcast(x, 0),
        "sent": hvd.alltoall(x),
        "own": hvd.reducescatter(x),
        "own of a group": hvd.grouped_reducescatter([x])[0],
    }


def collectives() -> None:
    """Compares each one with its value, on two ranks, eagerly and in a function."""
    one, two = np.ones((4, 2)), np.full((4, 2), 2.0)
    gathered = np.concatenate([one, two])
    mean = (one + two) / 2
    expected = {
        **{"mean": mean, "half": mean, "group": mean, "adasum": mean, "smallest": one},
        **{"rows": mean, "large": [2**62, -7], "gathered": gathered, "gathered group": gathered},
        **{"sparse": gathered, "root": one, "sent": np.concatenate([one[:2], two[:2]])},
        **{"own": mean[:2], "own of a group": mean[:2]},
    }
    x = tf.constant((one, two)[hvd.rank()], tf.float32)
    for function in (each_collective, tf.function(each_collective)):
        for name, value in function(x).items():
            np.testing.assert_array_equal(np.asarray(value), expected[name], err_msg=name)
    hvd.barrier()
    assert hvd.broadcast_object({"of": hvd.rank()}, 0) == {"of": 0}
    assert hvd.allgather_object(hvd.rank()) == [0, 1]
    hvd.join()


def gradients() -> None:
    """Asks for the gradient of each one that has one."""
    x = tf.Variable(tf.fill([2, 2], float(hvd.rank() + 1)))

    def every() -> list[tf.Tensor]:
        with tf.GradientTape(persistent=True) as tape:
            results = [
                *(hvd.allreduce(x), hvd.allreduce(x, op=hvd.Max), hvd.allgather(x)),
                *(hvd.allreduce(x, op=hvd.Product), hvd.allreduce(x, op=hvd.Adasum)),
                *(hvd.broadcast(x, 0), hvd.reducescatter(x), hvd.alltoall(x)),
            ]
            losses = [tf.reduce_sum(result) for result in results]
        return [tape.gradient(loss, x) for loss in losses]

    for function in (every, tf.function(every)):
        assert all(np.isfinite(gradient).all() for gradient in function())


def fit() -> None:
    """Trains a model on unequal data, with validation and each kind of callback."""
    random = np.random.default_rng(hvd.rank())
    x, y = (random.normal(size=(12 + 5 * hvd.rank(), n)) for n in (4, 1))
    model = keras.Sequential(
        [
            keras.Input((4,)),
            keras.layers.Dense(3, activation="tanh"),
            keras.layers.BatchNormalization(synchronized=True),
            keras.layers.Dropout(0.1),
            keras.layers.Dense(1, dtype="float32"),
        ]
    )
    optimizer = hvd_keras.DistributedOptimizer(keras.optimizers.Adam(0.01))
    model.compile(optimizer, loss="mse", metrics=["mae"])
    callbacks = [
        hvd_keras.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd_keras.callbacks.MetricAverageCallback(),
        hvd_keras.callbacks.LearningRateWarmupCallback(initial_lr=0.01, warmup_epochs=1),
    ]
    data = {"validation_data": (x, y), "batch_size": 4, "epochs": 2, "verbose": 0}
    history = model.fit(x, y, callbacks=callbacks, **data)
    assert_same([*values(model), np.array([history.history["val_mae"]])])


def loop() -> None:
    """Trains a model in a loop, eagerly and in a function, with compression."""
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1)])
    optimizer = keras.optimizers.SGD(0.1)
    hvd.broadcast_variables(model.variables, 0)

    def step(x: tf.Tensor, y: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((tf.cast(model(x), tf.float32) - y) ** 2)
        with hvd.batch_weight(x.shape[0]):
            distributed = hvd.DistributedGradientTape(tape, compression=hvd.Compression.fp16)
            found = distributed.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(found, model.trainable_variables))

    rows = 4 + hvd.rank()
    for function in (step, tf.function(step)):
        for _ in range(2):
            function(tf.random.normal([rows, 4]), tf.zeros([rows, 1]))
    assert_same(values(model))


def values(model: keras.Model) -> list[np.ndarray]:
    """Lists a model's weights."""
    return [weight.numpy().astype(np.float64) for weight in model.trainable_variables]


def assert_same(arrays: list[np.ndarray]) -> None:
    """Compares arrays with those of the other rank."""
    for mine, first in zip(arrays, hvd.broadcast_object(arrays, 0)):
        assert np.isfinite(mine).all()
        np.testing.assert_array_equal(mine, first)


def main(mode: str) -> None:
    """Runs all, in one mode."""
    MODES[mode]()
    hvd.init()
    for part in (collectives, gradients, *(() if mode in WITHOUT_KERAS else (fit, loop))):
        part()
        print(f"{part.__name__} done", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
