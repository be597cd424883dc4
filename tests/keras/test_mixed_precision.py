"""`fit` and loops with variables of another type than what is computed, in both Keras."""

from __future__ import annotations

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
