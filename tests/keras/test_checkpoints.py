"""hvd.checkpoint and hvd.callbacks.Checkpoint: saved at two ranks, and continued from there."""

import errno
import hashlib
import logging
import os
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from flavours import in_both_keras, keras_of, make_model, set_seed
from variants import also

import tfhvd.keras as hvd
from tfhvd.checkpoint.files import Files


@pytest.fixture
def folder(tmp_path):
    """A folder that all ranks share."""
    return Path(hvd.broadcast_object(str(tmp_path / "run"), 0))


def variables_of(model):
    optimizer = model.optimizer.variables
    return [*model.variables, *(optimizer() if callable(optimizer) else optimizer)]


def digest(model):
    found = hashlib.sha256()
    for variable in variables_of(model):
        found.update(np.asarray(variable.numpy()).tobytes())
    return found.hexdigest()


def compiled(keras, ranks=hvd.global_process_set):
    model = make_model(keras)
    optimizer = keras.optimizers.Adam(0.01)
    model.compile(hvd.DistributedOptimizer(optimizer, process_set=ranks), loss="mse")
    optimizer = model.optimizer
    if hasattr(optimizer, "build") and not getattr(optimizer, "built", False):
        optimizer.build(model.trainable_variables)
    return model


def fill(variables, number):
    """Gives variables values that no other call gives them."""
    random = np.random.default_rng(number)
    for variable in variables:
        dtype = tf.as_dtype(variable.dtype).as_numpy_dtype
        variable.assign(random.integers(0, 1000, variable.shape).astype(dtype))


@pytest.mark.ranks(3)
@in_both_keras
def test_saved_at_two_ranks_restored_at_one_and_three(package, folder):
    keras = keras_of(package)
    two = hvd.add_process_set([0, 1])
    alone = [hvd.add_process_set([rank]) for rank in range(3)]
    own = tf.Variable([float(hvd.rank())])
    if hvd.rank() < 2:
        model = compiled(keras, two)
        fill(variables_of(model), 1)
        manager = hvd.checkpoint.Manager(folder, process_set=two)
        mine = {"rank": hvd.rank(), "ids": np.arange(3)}
        assert manager.save(5, {"model": model, "own": own, "mine": mine}, local=[own])
        assert manager.committed == 5
        manager.close()
    hvd.barrier()
    expected = compiled(keras, alone[hvd.rank()])
    fill(variables_of(expected), 1)
    for ranks in (hvd.global_process_set, alone[0]):
        if not ranks.included():
            continue
        model, mine, own = compiled(keras, ranks), {}, tf.Variable([9.0])
        manager = hvd.checkpoint.Manager(folder, process_set=ranks)
        assert manager.restore({"model": model, "own": own, "mine": mine}, local=[own]) == 5
        manager.close()
        assert digest(model) == digest(expected)
        assert mine["rank"] == own.numpy()[0] == hvd.rank() % 2
    hvd.barrier()
    for ranks in (two, *alone):
        hvd.remove_process_set(ranks)


@pytest.mark.ranks(2)
class TestManager:
    def test_replicas_that_differ_are_named(self, folder):
        model = compiled(keras_of("keras"))
        manager = hvd.checkpoint.Manager(folder)
        if hvd.rank() == 1:
            model.layers[0].kernel.assign_add(tf.ones([4, 3]))
        with pytest.raises(hvd.NotSynchronizedError, match=r"kernel on rank 1 against"):
            manager.save(1, {"model": model})
        assert manager.restore({"model": model}) is None
        manager.close()

    def test_what_does_not_fit_is_named(self, folder):
        manager = hvd.checkpoint.Manager(folder)
        a, b = tf.Variable([1.0], name="a"), tf.Variable(2, name="b")
        manager.save(1, {"v": [a, b]})
        others = [tf.Variable([0.0, 0.0], name="a"), tf.Variable(0, name="c")]
        with pytest.raises(hvd.checkpoint.CheckpointError) as error:
            manager.restore({"v": others, "more": {}})
        for part in ("'v/a' is float32[1] in the checkpoint, and float32[2] here", "'more'"):
            assert part in str(error.value)
        for part in ("'v/c' is not in the checkpoint", "'v/b' is only in the checkpoint"):
            assert part in str(error.value)
        c = tf.Variable([0.0], name="a")
        assert manager.restore({"v": [c]}, strict=False) == 1
        assert c.numpy() == [1.0]
        manager.close()

    def test_the_newest_that_all_ranks_can_read(self, folder):
        manager = hvd.checkpoint.Manager(folder)
        v = tf.Variable([0.0])
        for step in (1, 2):
            v.assign([float(step)])
            manager.save(step, {"v": v, "rank": {"n": hvd.rank()}})
        if hvd.rank() == 0:
            damaged = next((folder / "step-00000002").glob("shared*"))
            damaged.write_bytes(damaged.read_bytes()[:-1])
        hvd.barrier()
        assert manager.restore({"v": v, "rank": {}}) == 1
        assert v.numpy() == [1.0]
        manager.close()

    def test_a_disk_that_is_full_on_one_rank(self, folder, monkeypatch, caplog):
        caplog.set_level(logging.WARNING, "tfhvd")
        manager = hvd.checkpoint.Manager(folder)
        v = tf.Variable(tf.range(10))

        def write(self, path, content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

        if hvd.rank() == 1:
            monkeypatch.setattr(Files, "write", write)
        with pytest.raises(hvd.checkpoint.CheckpointError, match=r"rank 1: .*No space left"):
            manager.save(1, {"v": v})
        assert manager.save(2, {"v": v}, wait=False)
        with pytest.raises(hvd.checkpoint.CheckpointError, match="No space left"):
            manager.wait()
        monkeypatch.undo()
        assert manager.save(3, {"v": v}) and manager.committed == 3 and manager.failed == 2
        assert ("No space left" in caplog.text) == (hvd.rank() == 1)
        manager.close()

    @in_both_keras
    def test_a_rank_whose_layers_have_other_numbers(self, package, folder):
        keras = keras_of(package)
        if hvd.rank() == 1:
            keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
        manager = hvd.checkpoint.Manager(folder)

        def model():
            layers = [keras.layers.Dense(size, activation="relu") for size in (3, 4, 5)]
            return keras.Sequential([keras.layers.Input((2,)), *layers])

        saved, restored = model(), model()
        hvd.broadcast_variables(saved.variables, root_rank=0)
        manager.save(1, {"model": saved})
        assert manager.restore({"model": restored}) == 1
        for was, now in zip(saved.get_weights(), restored.get_weights()):
            np.testing.assert_array_equal(was, now)
        manager.close()

    def test_what_changes_while_it_is_written_is_not_seen(self, folder):
        manager = hvd.checkpoint.Manager(folder)
        v = tf.Variable(tf.zeros([1000]))
        manager.save(1, {"v": v}, wait=False)
        v.assign_add(tf.ones([1000]))
        manager.wait()
        manager.restore({"v": v})
        assert not v.numpy().any()
        manager.close()

    def test_a_path_that_is_a_file(self, folder):
        if hvd.rank() == 0:
            folder.touch()
        hvd.barrier()
        with pytest.raises(hvd.checkpoint.CheckpointError, match="is a file"):
            hvd.checkpoint.Manager(folder)


class EndError(Exception):
    """What ends a job in the middle."""


def train(keras, folder, every, ends_at=None, epochs=3):
    """Trains; returns what comes out."""
    set_seed(keras, 7 + hvd.rank())
    layers = keras.layers
    middle = [layers.Dropout(0.3)] if keras.__name__ == "keras" else []
    middle += [layers.BatchNormalization()]
    model = keras.Sequential([layers.Input((4,)), layers.Dense(6), *middle, layers.Dense(1)])
    model.compile(
        hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)), loss="mse", metrics=["mae"]
    )
    x = np.random.default_rng(0).normal(size=(50, 4)).astype("float32")
    batches = hvd.data.Batches((x, x.sum(1, keepdims=True)), 8, shuffle=True)
    steps = []

    class Counts(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            steps.append(batch)
            if len(steps) == ends_at:
                raise EndError

    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), Counts()]
    callbacks += [hvd.callbacks.MetricAverageCallback()]
    if folder is not None:
        callbacks.append(hvd.callbacks.Checkpoint(folder, every))
    try:
        history = model.fit(batches, epochs=epochs, callbacks=callbacks, verbose=0).history
    except EndError:
        hvd.barrier()
        return None
    return digest(model), history, len(steps)


@pytest.mark.ranks(2)
@in_both_keras
@pytest.mark.parametrize(
    ("every", "left"), [also("epoch", 14), (3, 12)], ids=["epoch", "in the middle"]
)
def test_resumed_is_as_if_nothing_had_been(package, every, left, folder):
    keras = keras_of(package)
    whole = train(keras, None, every)
    assert train(keras, folder, every, ends_at=11) is None
    sha, history, steps = train(keras, folder, every)
    assert (sha, steps) == (whole[0], left)
    for name, values in history.items():
        np.testing.assert_allclose(values, whole[1][name][-len(values) :], rtol=1e-6)
    assert train(keras, folder, every)[0] == sha  # it is over already
