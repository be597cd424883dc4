"""Keras compiles a step with collectives where XLA has them, and nowhere else."""

from __future__ import annotations

import pytest
import tensorflow as tf
from flavours import in_both_keras, keras_of

import tfhvd as hvd
from tfhvd.runtime.native import chosen_ops

pytestmark = pytest.mark.ranks(1, 2)

only_with_xla = pytest.mark.skipif(not chosen_ops().xla, reason="this build has no XLA")


def on_gpus(monkeypatch, *, cuda: bool) -> None:
    """As on a machine with one, with a TensorFlow for NVIDIA's GPUs or for others'."""
    real = tf.config.list_physical_devices
    gpu = tf.config.PhysicalDevice("/physical_device:GPU:0", "GPU")
    monkeypatch.setattr(
        tf.config,
        "list_physical_devices",
        lambda kind=None: [gpu] if kind == "GPU" else real(kind),
    )
    info = {**tf.sysconfig.get_build_info(), "is_cuda_build": cuda}
    monkeypatch.setattr(tf.sysconfig, "get_build_info", lambda: info)


def compiles(package: str, *, wrapped: bool = True, kind: type | None = None, **attributes) -> bool:
    keras = keras_of(package)
    inputs = keras.Input((2,))
    model = (kind or keras.Model)(inputs, keras.layers.Dense(1)(inputs))
    for name, value in attributes.items():
        setattr(model, name, value)
    optimizer = keras.optimizers.SGD()
    if wrapped:
        optimizer = hvd.DistributedOptimizer(optimizer)
    model.compile(optimizer, "mse", jit_compile=True)
    model.make_train_function()
    return model.jit_compile


@only_with_xla
@in_both_keras
def test_without_a_gpu_and_on_nvidias(package, monkeypatch):
    assert compiles(package)
    on_gpus(monkeypatch, cuda=True)
    assert compiles(package)


@in_both_keras
def test_on_other_gpus_what_may_have_collectives_is_not_compiled(package, monkeypatch, caplog):
    keras = keras_of(package)

    class Own(keras.Model):
        def train_step(self, data):
            raise NotImplementedError

    on_gpus(monkeypatch, cuda=False)
    assert not compiles(package)
    distributed = hvd.DistributedOptimizer(keras.optimizers.SGD())
    assert not compiles(package, wrapped=False, optimizers={"generator": [distributed]})
    # Its tapes are seen when it is too late.
    assert compiles(package, wrapped=False, kind=Own) == (hvd.size() == 1)
    assert compiles(package, wrapped=False)
    assert caplog.text.count("runs with jit_compile=False") <= 1  # once in a process
