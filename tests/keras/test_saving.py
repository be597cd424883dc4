"""Saved models need no tfhvd to be opened, and load_model distributes their optimizer again."""

import json
import os
import subprocess
import sys

import children
import numpy as np
import pytest
from flavours import assert_close, data, in_both_keras, keras_of, make_model, values
from variants import also

import tfhvd.keras as hvd
from tfhvd.keras.optimizer import reduces
from tfhvd.keras.wrap.hooks import reducer_of

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


@in_both_keras
@pytest.mark.parametrize("averaged", [True, also(False)])
@pytest.mark.parametrize("suffix", ["keras", "h5"])
def test_arguments_are_in_the_file(package, suffix, averaged, tmp_path):
    keras = keras_of(package)
    arguments = {
        "backward_passes_per_step": 4,
        "average_aggregated_gradients": averaged,
        "op": hvd.Sum,
        "sparse_as_dense": True,
        "scale_local_gradients": False,
        "quarantine": True,
        "compression": hvd.Compression.fp16,
    }
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.03125), **arguments)
    model = trained(keras, optimizer)
    model.save(tmp_path / f"model.{suffix}")
    opened = hvd.load_model(tmp_path / f"model.{suffix}")
    options = reducer_of(opened.optimizer).options
    assert {name: getattr(options, name) for name in arguments} == arguments
    other = hvd.load_model(tmp_path / f"model.{suffix}", op=hvd.Average)
    assert reducer_of(other.optimizer).options.op == hvd.Average
    x, y = data(seed=1)
    before = values(model.weights)
    for each in (opened, model):
        for _ in range(8):
            each.train_on_batch(x, y)
    assert_close(opened.weights, values(model.weights))
    assert not np.allclose(values(model.weights)[0], before[0])


def test_an_h5_file_of_plain_keras_does_not_say_how_passes_are_accumulated(tmp_path):
    keras = keras_of("keras")
    model = trained(keras, keras.optimizers.SGD(0.03125, gradient_accumulation_steps=4))
    model.save(tmp_path / "model.h5")
    with pytest.raises(ValueError, match=r"accumulates 4 passes.*Expected: .*_per_step=4"):
        hvd.load_model(tmp_path / "model.h5")
    averaged = {"average_aggregated_gradients": True}
    opened = hvd.load_model(tmp_path / "model.h5", backward_passes_per_step=4, **averaged)
    x, y = data(seed=1)
    for each in (opened, model):
        for _ in range(8):
            each.train_on_batch(x, y)
    assert_close(opened.weights, values(model.weights))


@in_both_keras
def test_an_h5_file_that_is_open_and_one_that_is_not_overwritten(package, tmp_path, monkeypatch):
    import h5py

    keras = keras_of(package)
    path = tmp_path / "model.h5"
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.5), op=hvd.Sum)
    model = trained(keras, optimizer)
    model.save(path)
    written = path.read_bytes()
    monkeypatch.setattr("builtins.input", lambda text="": "n")
    model.save(path, overwrite=False)
    assert path.read_bytes() == written
    model.save(tmp_path / "plain.h5", include_optimizer=False)
    with h5py.File(path, "r") as saved, h5py.File(tmp_path / "plain.h5", "r") as plain:
        assert json.loads(saved.attrs["tfhvd_arguments"])["op"] == "Sum"
        assert "tfhvd_arguments" not in plain.attrs


@in_both_keras
@pytest.mark.parametrize("suffix", ["keras", also("h5")])
def test_local_variables_are_to_be_given_again(package, suffix, tmp_path, caplog):
    keras = keras_of(package)
    model = make_model(keras)
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.5))
    model.compile(optimizer, keras.losses.MeanSquaredError())
    path = tmp_path / f"model.{suffix}"
    model.save(path)
    optimizer.register_local_var(model.trainable_variables[0])
    model.save(path)  # with what is local by now
    hvd.load_model(path)
    [line] = [r.getMessage() for r in caplog.records if r.name == "tfhvd"]
    assert "kernel. They are reduced now." in line and "register_local_var(variable)" in line


def test_a_process_set_is_to_be_given_again(tmp_path, caplog):
    import h5py

    keras = keras_of("keras")
    path = tmp_path / "model.h5"
    trained(keras, hvd.DistributedOptimizer(keras.optimizers.SGD(0.5))).save(path)
    with h5py.File(path, "a") as file:  # as a job of more ranks has saved it
        saved = json.loads(file.attrs["tfhvd_arguments"])
        assert saved["ranks"] is None
        file.attrs["tfhvd_arguments"] = json.dumps(saved | {"ranks": [0, 2]})
    hvd.load_model(path, process_set=hvd.global_process_set)
    assert "process_set" not in caplog.text
    hvd.load_model(path)
    assert "process_set=hvd.add_process_set([0, 2])" in caplog.text


@pytest.mark.parametrize("suffix", ["keras", also("h5")])
def test_a_compression_with_a_state_has_to_be_given(suffix, tmp_path):
    keras = keras_of("keras")
    compression = hvd.Compression.topk(0.5)
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.03125), compression=compression)
    trained(keras, optimizer).save(tmp_path / f"model.{suffix}")
    with pytest.raises(ValueError, match=r"compression TopK.*compression=<a TopK>"):
        hvd.load_model(tmp_path / f"model.{suffix}")
    opened = hvd.load_model(tmp_path / f"model.{suffix}", compression=hvd.Compression.none)
    assert reducer_of(opened.optimizer).options.compression is hvd.Compression.none


@pytest.mark.thorough
@pytest.mark.variant
def test_lars_is_found_in_a_new_process(tmp_path):
    keras = keras_of("keras")
    optimizer = hvd.DistributedOptimizer(hvd.optimizers.LARS(0.25, momentum=0.5))
    trained(keras, optimizer).save(tmp_path / "model.keras")
    program = (
        "import sys, tfhvd.keras as hvd; hvd.init(); "
        "print(type(hvd.load_model(sys.argv[1]).optimizer).__name__)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "model.keras")],
        capture_output=True,
        text=True,
        timeout=90,
        env=children.environment(),
    )
    assert result.returncode == 0, result.stderr[-3000:]
    assert result.stdout.split()[-1].endswith("LARS")


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
