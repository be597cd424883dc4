"""Saved models need no tfhvd to be opened, and load_model distributes their optimizer again."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from flavours import assert_close, data, in_both_keras, keras_of, make_model, values
from variants import also

import tfhvd.keras as hvd
from tfhvd.keras.optimizer import reduces

pytestmark = pytest.mark.ranks(1)

# Opens models where importing tfhvd fails; prints a line on each.
OPEN = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "tfhvd":
            raise ImportError("blocked: " + name)
sys.meta_path.insert(0, Block())
import importlib, json
keras = importlib.import_module(sys.argv[1])
for file in sys.argv[2:]:
    model = keras.models.load_model(file)
    optimizer = model.optimizer
    print(json.dumps({
        "class": type(optimizer).__name__,
        "package": type(optimizer).__module__.partition(".")[0],
        "weights": [w.numpy().tolist() for w in model.weights],
        "state": [w.numpy().tolist() for w in optimizer.variables],
        "tfhvd": any(name.partition(".")[0] == "tfhvd" for name in sys.modules),
    }))
"""


def open_without_tfhvd(package, *files):
    result = subprocess.run(
        [sys.executable, "-c", OPEN, package, *map(str, files)],
        capture_output=True,
        text=True,
        timeout=90,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return [json.loads(line) for line in result.stdout.splitlines()[-len(files) :]]


def trained(keras, optimizer):
    model = make_model(keras)
    model.compile(optimizer, keras.losses.MeanSquaredError())
    x, y = data(seed=0)
    model.fit(x, y, batch_size=4, epochs=2, verbose=0)
    return model


def assert_continues(opened, model):
    """Trains both on: the same weights follow from the same state."""
    assert reduces(opened.optimizer)
    x, y = data(seed=1)
    for each in (opened, model):
        each.fit(x, y, batch_size=len(x), epochs=2, verbose=0)
    assert_close(opened.weights, values(model.weights))


@in_both_keras
def test_plain_keras_opens_what_was_saved(package, tmp_path):
    keras = keras_of(package)
    optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.03125, clipnorm=1.0))
    model = trained(keras, optimizer)
    files = [tmp_path / "model.keras", tmp_path / "model.h5"]
    for file in files:
        model.save(file)
    if package == "tf_keras":
        model.save(tmp_path / "saved", save_format="tf")
        files.append(tmp_path / "saved")
    state, weights = values(optimizer.variables), values(model.weights)
    for file, plain in zip(files, open_without_tfhvd(package, *files)):
        assert not plain["tfhvd"]
        assert (plain["class"], plain["package"]) == ("Adam", package)
        assert_close([np.array(w) for w in plain["weights"]], weights)
        # Keras 3 leaves the state in an .h5 file unread, tf_keras in a folder until training.
        if (package, file.suffix) not in [("keras", ".h5"), ("tf_keras", "")]:
            assert_close([np.array(w) for w in plain["state"]], state)


@in_both_keras
@pytest.mark.parametrize("suffix", [".keras", also(".h5")])
def test_load_model(package, suffix, tmp_path):
    keras = keras_of(package)
    optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.03125, clipnorm=1.0))
    model = trained(keras, optimizer)
    model.save(tmp_path / f"model{suffix}")
    opened = hvd.load_model(tmp_path / f"model{suffix}")
    assert isinstance(opened.optimizer, keras.optimizers.Adam)
    assert_close(opened.optimizer.variables, values(optimizer.variables))
    assert_continues(opened, model)


def test_legacy_optimizer(tmp_path):
    keras = keras_of("tf_keras")
    model = trained(keras, hvd.DistributedOptimizer(keras.optimizers.legacy.Adam(0.03125)))
    model.save(tmp_path / "model.h5")
    plain = keras.models.load_model(tmp_path / "model.h5")
    assert type(plain.optimizer) is keras.optimizers.legacy.Adam
    assert_continues(hvd.load_model(tmp_path / "model.h5"), model)


def test_loss_scale(tmp_path):
    keras = keras_of("keras")
    scaled = keras.mixed_precision.LossScaleOptimizer(keras.optimizers.SGD(0.5))
    model = trained(keras, hvd.DistributedOptimizer(scaled))
    model.save(tmp_path / "model.keras")
    plain = keras.models.load_model(tmp_path / "model.keras")
    assert type(plain.optimizer) is keras.optimizers.LossScaleOptimizer
    assert type(plain.optimizer.inner_optimizer) is keras.optimizers.SGD
    assert_continues(hvd.load_model(tmp_path / "model.keras"), model)


@in_both_keras
def test_weights(package, tmp_path):
    keras = keras_of(package)
    model = trained(keras, hvd.DistributedOptimizer(keras.optimizers.Adam(0.03125)))
    model.save_weights(tmp_path / "model.weights.h5")
    plain = make_model(keras, seed=7)
    plain.compile(keras.optimizers.Adam(0.03125), keras.losses.MeanSquaredError())
    plain.load_weights(tmp_path / "model.weights.h5")
    assert_close(plain.weights, model.weights)


def test_classes_of_ones_own(tmp_path):
    keras = keras_of("keras")

    class Slow(keras.optimizers.SGD):
        pass

    model = trained(keras, hvd.DistributedOptimizer(Slow(0.25)))
    model.save(tmp_path / "model.keras")
    opened = hvd.load_model(
        tmp_path / "model.keras",
        custom_optimizers=[Slow],
        compression=hvd.Compression.fp16,
        op=hvd.Sum,
    )
    assert isinstance(opened.optimizer, Slow)
    assert_continues(opened, model)


def test_legacy_opts(tmp_path):
    """Horovod's way to say which kind of optimizer a file has; a file says so itself."""
    keras = keras_of("tf_keras")
    kinds = {"legacy": keras.optimizers.legacy.Adam, "new": keras.optimizers.Adam}
    for kind, optimizer in kinds.items():
        model = trained(keras, hvd.DistributedOptimizer(optimizer(0.03125)))
        model.save(tmp_path / f"{kind}.h5")
    opened = hvd.load_model(tmp_path / "legacy.h5", legacy_opts=True)
    assert isinstance(opened.optimizer, kinds["legacy"])
    with pytest.raises(ValueError, match=r"tf_keras's Adam; leave out legacy_opts\."):
        hvd.load_model(tmp_path / "new.h5", legacy_opts=True)


@in_both_keras
def test_safe_mode(package, tmp_path):
    """A file with pickled code in it is opened only where that is asked for."""
    keras = keras_of(package)
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Lambda(lambda x: 2 * x)])
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD()), "mse")
    model.save(tmp_path / "model.keras")
    with pytest.raises(ValueError, match=r"(?i)arbitrary code execution"):
        hvd.load_model(tmp_path / "model.keras")
    opened = hvd.load_model(tmp_path / "model.keras", safe_mode=False)
    np.testing.assert_array_equal(opened(np.ones((1, 4), "float32")), [[2.0] * 4])


def test_a_model_without_an_optimizer(tmp_path):
    keras = keras_of("keras")
    make_model(keras).save(tmp_path / "model.keras")
    assert getattr(hvd.load_model(tmp_path / "model.keras"), "optimizer", None) is None
