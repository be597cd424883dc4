"""`fit` and loops with variables of another type than what is computed, in both Keras."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from flavours import assert_same_on_all_ranks, data, keras_of, make_model, values
from variants import also

import tfhvd.keras as hvd

pytestmark = pytest.mark.ranks(1, 2)

EPOCHS = 3


@pytest.fixture(params=["keras", "tf_keras"])
def keras(request: pytest.FixtureRequest, policy: str) -> Iterator[Any]:
    """A Keras whose models are of a policy."""
    package = keras_of(request.param)
    before = package.mixed_precision.global_policy().name
    package.mixed_precision.set_global_policy(policy)
    yield package
    package.mixed_precision.set_global_policy(before)


policies = pytest.mark.parametrize("policy", ["mixed_float16", also("mixed_bfloat16")])


@policies
def test_every_callback(keras, tmp_path, capfd):
    model = make_model(keras, seed=hvd.rank())
    optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.01))
    model.compile(optimizer, "mse", metrics=["mae"], jit_compile=False)
    x, y = data(seed=hvd.rank(), samples=16 + 4 * hvd.rank())  # unequal
    best = hvd.callbacks.BestModelCheckpoint("val_loss", filepath=str(tmp_path / "best.keras"))
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
        hvd.callbacks.LearningRateWarmupCallback(0.01, warmup_epochs=1),
        hvd.callbacks.LearningRateScheduleCallback(0.01, 0.5, start_epoch=1),
        hvd.callbacks.DivergenceCallback(every=1),
        hvd.callbacks.CSVLogger(str(tmp_path / "log.csv")),
        hvd.callbacks.MetricsCallback(str(tmp_path)),
        hvd.callbacks.ProfileCallback(),
        best,
        keras.callbacks.EarlyStopping("val_loss", patience=EPOCHS),
    ]
    fit = {"batch_size": 4, "epochs": EPOCHS, "verbose": 0, "callbacks": callbacks}
    history = model.fit(x, y, validation_data=(x, y), **fit).history
    assert len(history["loss"]) == EPOCHS
    assert_same_on_all_ranks(model.trainable_variables)
    assert_same_on_all_ranks([np.array(history["val_loss"])])
    assert "not finite" not in capfd.readouterr().err
    if hvd.rank() == 0:
        assert hvd.is_distributed(hvd.load_model(tmp_path / "best.keras").optimizer)


@policies
@pytest.mark.parametrize("passes", [1, also(2)])
def test_a_step_of_ones_own(keras, passes):
    model = make_model(keras)
    scaled = "float16" in keras.mixed_precision.global_policy().name.partition("_")[2].split("b")
    plain = keras.optimizers.SGD(0.01)
    optimizer = hvd.DistributedOptimizer(plain, backward_passes_per_step=passes)
    if scaled:
        holder = keras.optimizers if keras.__name__ == "keras" else keras.mixed_precision
        optimizer = holder.LossScaleOptimizer(optimizer)
    optimizer.build(model.trainable_variables)
    before = values(model.trainable_variables)
    x, y = data(seed=hvd.rank())

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.cast(model(x, training=True), tf.float32) - y))
            if scaled:
                keras_3 = keras.__name__ == "keras"
                scale = optimizer.scale_loss if keras_3 else optimizer.get_scaled_loss
                loss = scale(loss)
        gradients = tape.gradient(loss, model.trainable_variables)
        if scaled and keras.__name__ == "tf_keras":
            gradients = optimizer.get_unscaled_gradients(gradients)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))

    for _ in range(4 * passes):
        step()
    assert not np.array_equal(before[0], values(model.trainable_variables)[0])
    assert_same_on_all_ranks(model.trainable_variables)


@pytest.mark.parametrize("policy", ["mixed_float16"])
def test_compressed_with_a_loss_scale(keras):
    """Top-k of all elements is exact, also after the steps that a loss scale leaves out."""
    x, y = data(seed=hvd.rank())
    trained, scales = [], []
    for compression in (hvd.Compression.none, hvd.Compression.topk(1.0, least=1)):
        model = make_model(keras)
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(1e-4), compression=compression)
        model.compile(optimizer, "mse", jit_compile=False)
        model.fit(x, 300 * y, batch_size=4, epochs=EPOCHS, verbose=0)
        trained.append(values(model.trainable_variables))
        name = "dynamic_scale" if keras.__name__ == "keras" else "loss_scale"
        scales.append(float(tf.convert_to_tensor(getattr(model.optimizer, name))))
    assert 1 < scales[0] == scales[1] < 2**15
    for mine, expected in zip(*trained[::-1]):
        np.testing.assert_allclose(mine, expected, rtol=1e-5, atol=1e-6)


COMPRESSIONS = {
    "topk": lambda: hvd.Compression.topk(0.25, least=1),
    "powersgd": lambda: hvd.Compression.powersgd(1),
}


def _trained_by_a_tape(
    keras: Any, compression: Any, factors: list[float | None], scaled: bool
) -> Any:
    """Trains with drawn gradients times factors, None for one that is left out.

    Returns the weights, and the loss scale at the end.
    """
    layer = keras.layers.Dense(8, use_bias=False, dtype="float32", kernel_initializer="zeros")
    layer.build((None, 6))
    optimizer = keras.optimizers.SGD(1.0)
    keras_3 = keras.__name__ == "keras"
    if scaled:
        holder = keras.optimizers if keras_3 else keras.mixed_precision
        optimizer = holder.LossScaleOptimizer(optimizer, initial_scale=8.0, dynamic_growth_steps=2)
    optimizer.build(layer.trainable_variables)
    random = tf.random.Generator.from_seed(hvd.rank())

    @tf.function
    def step(wanted):
        with tf.GradientTape() as plain:
            loss = tf.reduce_sum(wanted * tf.convert_to_tensor(layer.kernel))
            if scaled:
                loss = (optimizer.scale_loss if keras_3 else optimizer.get_scaled_loss)(loss)
        tape = hvd.DistributedGradientTape(plain, compression=compression)
        gradients = tape.gradient(loss, layer.trainable_variables)
        if scaled and not keras_3:
            gradients = optimizer.get_unscaled_gradients(gradients)
        optimizer.apply_gradients(zip(gradients, layer.trainable_variables))

    for factor in factors:
        drawn = random.normal([6, 8])
        if factor is not None:
            step(factor * drawn)
    name = "dynamic_scale" if keras_3 else "loss_scale"
    scale = float(tf.convert_to_tensor(getattr(optimizer, name))) if scaled else 1.0
    return values(layer.trainable_variables)[0], scale


@pytest.mark.parametrize("policy", ["mixed_float16"])
@pytest.mark.parametrize("kind", COMPRESSIONS)
def test_a_tape_keeps_what_is_left_out_in_the_units_of_the_loss(keras, kind):
    """A loss scale that changes, and leaves out a step, changes nothing else."""
    steps: list[float | None] = [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    without = [*steps[:3], None, *steps[4:]]
    if hvd.rank() == hvd.size() - 1:
        steps[3] = math.inf
    expected, _ = _trained_by_a_tape(keras, COMPRESSIONS[kind](), without, scaled=False)
    found, scale = _trained_by_a_tape(keras, COMPRESSIONS[kind](), steps, scaled=True)
    assert scale == 16.0  # doubled, halved, and doubled again
    np.testing.assert_array_equal(found, expected)
    assert_same_on_all_ranks([found])
