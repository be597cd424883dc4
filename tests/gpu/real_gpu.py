"""What ranks do with TensorFlow's tensors on a real GPU, for tests/gpu/run.sh.

    [mpirun -np 2] python tests/gpu/real_gpu.py PART...

Ranks that share the GPU say so by TFHVD_SHARED_GPU=1, and that they are two hosts by NCCL_HOSTID;
TF_FORCE_GPU_ALLOW_GROWTH=true lets both have of its memory. What trains with tf_keras is a job of
its own.
Each part prints what it has passed or, where it measures, what it has measured.
"""

from __future__ import annotations

import importlib
import os
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

if "fit tf_keras" in sys.argv:
    os.environ["TF_USE_LEGACY_KERAS"] = "1"  # before TensorFlow is imported

import numpy as np
import on_fakes
import tensorflow as tf
from flavours import assert_same_on_all_ranks  # on_fakes has put its folder on the path

import tfhvd as hvd


def compiled() -> None:
    """Functions that XLA compiles for the GPU give what the same give uncompiled."""

    def several(x, rows):
        results = [
            hvd.allreduce(x),
            hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5),
            hvd.allreduce(x, op=hvd.Max),
            hvd.allgather(rows),
            hvd.broadcast(rows, 0),
            hvd.reducescatter(rows),
            hvd.alltoall(rows),
            *hvd.grouped_allreduce([x, rows]),
        ]
        for _ in tf.range(3):
            x = 0.5 * hvd.allreduce(x, name="in a loop")
        return [x, *results]

    plain, by_xla = tf.function(several), tf.function(several, jit_compile=True)
    rank, size = hvd.rank(), hvd.size()
    with tf.device("/GPU:0"):
        for number in range(20):
            x = tf.sin(tf.range(1000.0) + rank + number)
            rows = tf.reshape(tf.cos(tf.range(6.0 * size) * (rank + 1) + number), [2 * size, 3])
            for got, expected in zip(by_xla(x, rows), plain(x, rows)):
                assert "GPU:0" in got.device, got.device
                error = np.abs(got.numpy() - expected.numpy()).max()
                assert error <= 1e-6, (number, error)


def _make_layers(units: int, layers: int) -> list[tf.Variable]:
    random = np.random.default_rng(3)
    with tf.device("/GPU:0"):
        return [
            tf.Variable(random.normal(size=(units, units), scale=units**-0.5).astype("float32"))
            for _ in range(layers)
        ]


def _loss(weights: list[tf.Variable], x: tf.Tensor) -> tf.Tensor:
    for weight in weights:
        x = tf.tanh(tf.linalg.matmul(x, weight))
    return tf.reduce_mean(tf.square(x - 0.5))


def compiled_training() -> None:
    """A step that XLA compiles trains as the same step uncompiled, on all ranks alike."""
    x = tf.sin(tf.reshape(tf.range(64.0 * 32), [64, 32]) + hvd.rank())

    def train(jit_compile: bool) -> list[np.ndarray]:
        weights = _make_layers(32, 6)

        @tf.function(jit_compile=jit_compile)
        def step(x):
            with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
                loss = _loss(weights, x)
            for weight, gradient in zip(weights, tape.gradient(loss, weights)):
                weight.assign_sub(0.5 * gradient)
            return loss

        with tf.device("/GPU:0"):
            for _ in range(20):
                step(x)
        return [weight.numpy() for weight in weights]

    begun = [weight.numpy() for weight in _make_layers(32, 6)]
    for got, expected, start in zip(train(True), train(False), begun):
        assert np.abs(got - expected).max() < 1e-4, np.abs(got - expected).max()
        assert np.abs(got - start).max() > 1e-3
        everyone = hvd.allgather(got[None]).numpy()
        assert (everyone == everyone[0]).all()


def _samples(rank: int) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(rank).normal(size=(256, 16, 16, 3)).astype("float32")
    return x, x.mean(axis=(1, 2, 3))[:, None]


def _convolutions(keras: Any) -> Any:
    layers = keras.layers
    return keras.Sequential(
        [
            layers.Input((16, 16, 3)),
            layers.Conv2D(8, 3, activation="relu"),
            layers.BatchNormalization(),
            layers.Flatten(),
            layers.Dense(16, activation="relu"),
            layers.Dense(1),
        ]
    )


def fit(package: str) -> None:
    """Both Kerases' fit: the loss falls, and weights are alike."""
    import tfhvd.keras as keras_hvd

    keras = importlib.import_module(package)
    keras.utils.set_random_seed(hvd.rank())
    model = _convolutions(keras)
    model.compile(keras_hvd.DistributedOptimizer(keras.optimizers.Adam(1e-3)), "mse")
    callbacks = [
        keras_hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        keras_hvd.callbacks.MetricAverageCallback(),
        keras_hvd.callbacks.LearningRateWarmupCallback(1e-3, warmup_epochs=2),
    ]
    x, y = _samples(hvd.rank())
    history = model.fit(x, y, batch_size=32, epochs=6, verbose=0, callbacks=callbacks)
    losses = history.history["loss"]
    assert losses[-1] < 0.7 * losses[0], losses
    assert_same_on_all_ranks(model.trainable_variables)
    print(f"{package}: losses {losses[0]:.4f} to {losses[-1]:.4f}", flush=True)


def compiled_fit() -> None:
    """A training step that XLA compiles trains as one that it does not, in fit."""
    import keras

    import tfhvd.keras as keras_hvd

    # Products of TensorFloat-32 differ by far more than the order of sums does.
    tf.config.experimental.enable_tensor_float_32_execution(False)
    random = np.random.default_rng(hvd.rank())
    x = random.normal(size=(256, 8)).astype("float32")
    y = np.sin(x).sum(axis=1, keepdims=True)

    def train(jit_compile: bool, per_execution: int) -> tuple[list[np.ndarray], float]:
        keras.utils.set_random_seed(7)
        model = keras.Sequential([keras.layers.Input((8,))])
        for _ in range(4):
            model.add(keras.layers.Dense(16, activation="tanh"))
        model.add(keras.layers.Dense(1))
        optimizer = keras_hvd.DistributedOptimizer(keras.optimizers.SGD(1e-2, momentum=0.9))
        model.compile(optimizer, "mse", jit_compile=jit_compile, steps_per_execution=per_execution)
        callbacks = [keras_hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
        model.fit(x, y, batch_size=32, shuffle=False, verbose=0, callbacks=callbacks)
        begun = time.perf_counter()
        model.fit(x, y, batch_size=32, epochs=5, shuffle=False, verbose=0)
        spent = time.perf_counter() - begun
        assert model.jit_compile == jit_compile
        assert_same_on_all_ranks(model.trainable_variables)
        return [w.numpy() for w in model.trainable_variables], 1e3 * spent / 40

    expected, plain = train(False, 1)
    for per_execution in (1, 4):
        got, spent = train(True, per_execution)
        error = max(np.abs(a - b).max() for a, b in zip(got, expected))
        if hvd.rank() == 0:
            print(
                f"{per_execution} steps a call: {spent:.2f} ms a step compiled, {plain:.2f} not; "
                f"weights differ by {error:.1e}",
                flush=True,
            )
        assert error < 1e-4, error
    tf.config.experimental.enable_tensor_float_32_execution(True)


def speed() -> None:
    """What the wrapped optimizer costs in fit, of one rank."""
    import keras

    import tfhvd.keras as keras_hvd

    random = np.random.default_rng(0)
    with tf.device("/GPU:0"):
        x = tf.constant(random.normal(size=(4096, 32, 32, 3)).astype("float32"))
        y = tf.constant(random.integers(0, 10, size=(4096,)))
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(128, drop_remainder=True).cache()
    for jit_compile in (False, True):
        times = []
        for wrapped in (False, True):
            model = keras.Sequential([keras.layers.Input((32, 32, 3))])
            for filters in (64, 64, 128, 128, 256, 256):
                model.add(keras.layers.Conv2D(filters, 3, padding="same", activation="relu"))
                model.add(keras.layers.BatchNormalization())
            model.add(keras.layers.GlobalAveragePooling2D())
            model.add(keras.layers.Dense(10))
            optimizer = keras.optimizers.SGD(1e-3)
            if wrapped:
                optimizer = keras_hvd.DistributedOptimizer(optimizer)
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            model.compile(optimizer, loss, jit_compile=jit_compile)
            model.fit(data, epochs=1, verbose=0)
            begun = time.perf_counter()
            model.fit(data, epochs=3, verbose=0)
            times.append(1e3 * (time.perf_counter() - begun) / 96)
        if hvd.rank() == 0:
            print(
                f"fit, {'compiled' if jit_compile else 'not compiled'}: plain {times[0]:.2f} ms a "
                f"step, wrapped {times[1]:.2f} ms",
                flush=True,
            )


def report() -> None:
    """What profiling says of a training on the GPU."""
    import keras

    import tfhvd.keras as keras_hvd

    x, y = _samples(hvd.rank())
    model = _convolutions(keras)
    model.compile(keras_hvd.DistributedOptimizer(keras.optimizers.SGD(1e-3)), "mse")
    callbacks = [keras_hvd.ProfileCallback(steps=20, skip=10), keras_hvd.DivergenceCallback(10)]
    model.fit(x, y, batch_size=8, epochs=2, verbose=0, callbacks=callbacks)


def _milliseconds(step: Callable[[], Any], runs: int = 20) -> float:
    times = []
    for number in range(runs + 5):
        hvd.barrier()
        begun = time.perf_counter()
        result = step()
        tf.nest.map_structure(lambda t: t.numpy().sum(), result)
        if number >= 5:
            times.append(1e3 * (time.perf_counter() - begun))
    return statistics.median(times)


def overlap() -> None:
    """Whether the backward pass goes on while gradients travel: the three times of a step."""
    for units, layers, batch in ((1024, 12, 65536), (2048, 8, 16384)):
        weights = _make_layers(units, layers)
        with tf.device("/GPU:0"):
            x = tf.random.normal([batch, units])
            gradients = [tf.random.normal([units, units]) for _ in weights]

        def last(tensors):
            return [tf.reshape(tensor, [-1])[:1] for tensor in tensors]

        @tf.function
        def compute(x=x, weights=weights):
            with tf.GradientTape() as tape:
                loss = _loss(weights, x)
            return last(tape.gradient(loss, weights))

        @tf.function
        def communicate(gradients=gradients):
            return last(hvd.grouped_allreduce(gradients))

        @tf.function
        def both(x=x, weights=weights):
            with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
                loss = _loss(weights, x)
            return last(tape.gradient(loss, weights))

        for jit_compile in (False, True):
            steps = [compute, communicate, both]
            if jit_compile:
                steps = [tf.function(step.python_function, jit_compile=True) for step in steps]
            with tf.device("/GPU:0"):
                times = [_milliseconds(step, 8) for step in steps]
            hidden = (times[0] + times[1] - times[2]) / min(times[0], times[1])
            if hvd.rank() == 0:
                print(
                    f"{layers} layers of {units}x{units}, batch {batch}, "
                    f"{'compiled' if jit_compile else 'not compiled'}: computing {times[0]:.2f} "
                    f"ms, allreduce {times[1]:.2f} ms, together {times[2]:.2f} ms: "
                    f"{hidden:.0%} of the shorter hidden",
                    flush=True,
                )


def many_tensors() -> None:
    """What many small gradients cost in a step, on the GPU and on the host's memory."""
    for device in ("/GPU:0", "/CPU:0"):
        with tf.device(device):
            tensors = [tf.ones([256]) * i for i in range(500)]

            @tf.function
            def identity(tensors=tensors, device=device):
                with tf.device(device):
                    return [tf.identity(t) for t in tensors][-1]

            @tf.function
            def single(tensors=tensors, device=device):
                with tf.device(device):
                    named = enumerate(tensors)
                    return [hvd.allreduce(t, op=hvd.Sum, name=f"m{i}") for i, t in named][-1]

            @tf.function
            def grouped(tensors=tensors, device=device):
                with tf.device(device):
                    return hvd.grouped_allreduce(tensors, op=hvd.Sum, name="g")[-1]

            times = [_milliseconds(step, 30) for step in (identity, single, grouped)]
        if hvd.rank() == 0:
            print(
                f"500 x 1 KiB on {device}: tf.identity {times[0]:.2f} ms, an allreduce each "
                f"{times[1]:.2f} ms, one grouped {times[2]:.2f} ms",
                flush=True,
            )


DO: dict[str, Callable[[], None]] = {
    "compiled": compiled,
    "compiled steps": compiled_training,
    "fit keras": lambda: fit("keras"),
    "fit tf_keras": lambda: fit("tf_keras"),
    "compiled fit": compiled_fit,
    "overlap": overlap,
    "speed": speed,
    "report": report,
    "many tensors": many_tensors,
}


def main() -> int:
    """Goes through the parts that are named; each that fails is told, and the next begins."""
    failed = 0
    for part in sys.argv[1:]:
        begun = time.perf_counter()
        try:
            if not hvd.is_initialized():
                hvd.init()
            (DO.get(part) or on_fakes.DO[part])()
            print(f"passed: {part} ({time.perf_counter() - begun:.1f} s)", flush=True)
        except Exception:
            failed += 1
            traceback.print_exc()
            print(f"FAILED: {part}", flush=True)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
