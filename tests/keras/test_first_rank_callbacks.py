"""Keras' callbacks that write files: given to all ranks, they write on one."""

import csv
import sys

import numpy as np
import pytest
import tensorflow as tf
import user_messages
from flavours import assert_close, data, in_both_keras, keras_of, make_model
from variants import first_of

import tfhvd
import tfhvd.keras as hvd
from tfhvd.keras.callbacks.first_rank import FirstRank, FirstRankCallback

pytestmark = pytest.mark.ranks(2, 4)
CALLBACKS = (hvd.callbacks.TensorBoard, hvd.callbacks.CSVLogger, hvd.callbacks.ModelCheckpoint)


def compiled(keras, **arguments):
    model = make_model(keras, seed=0)
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.01), **arguments)
    model.compile(optimizer, keras.losses.MeanSquaredError())
    return model


def scalars(folder):
    """The values of each name that TensorBoard would show."""
    found = {}
    for file in sorted(folder.glob("events*")):
        for event in tf.compat.v1.train.summary_iterator(str(file)):
            for value in event.summary.value:
                if value.metadata.plugin_data.plugin_name == "scalars":
                    found.setdefault(value.tag, []).append(float(tf.make_ndarray(value.tensor)))
    return found


def writers(folder):
    return [
        hvd.callbacks.ModelCheckpoint(folder / "{epoch}.weights.h5", save_weights_only=True),
        hvd.callbacks.ModelCheckpoint(str(folder / "best.keras"), "loss", save_best_only=True),
        hvd.callbacks.CSVLogger(folder / "log.csv"),
        hvd.callbacks.TensorBoard(folder / "logs", update_freq="batch", write_graph=True),
    ]


@in_both_keras
def test_rank_0_writes_the_metrics_of_all(package, tmp_path):
    keras = keras_of(package)
    model = compiled(keras)
    x, y = data(seed=hvd.rank())
    folder = tmp_path / str(hvd.rank())
    folder.mkdir()
    callbacks = [hvd.callbacks.MetricAverageCallback(), *writers(folder)]
    history = model.fit(
        x, y, epochs=2, verbose=0, callbacks=callbacks, validation_data=(x, y)
    ).history
    if hvd.rank() > 0:
        assert not list(folder.iterdir())
        return
    with (folder / "log.csv").open() as file:
        rows = list(csv.DictReader(file))
    np.testing.assert_allclose([float(row["loss"]) for row in rows], history["loss"])
    shown = scalars(folder / "logs" / "train")
    np.testing.assert_allclose(shown["epoch_loss"], history["loss"], rtol=1e-6)
    shown = scalars(folder / "logs" / "validation")
    np.testing.assert_allclose(shown["epoch_loss"], history["val_loss"], rtol=1e-6)
    assert callbacks[2].best == min(history["loss"])
    assert (folder / "1.weights.h5").is_file()
    assert_close(keras.models.load_model(folder / "best.keras").weights, model.weights)


@in_both_keras
def test_every_hook_of_keras_is_held_back(package):
    """A hook that a release of Keras adds would be called on all ranks."""
    keras = keras_of(package)
    for ours in CALLBACKS:
        theirs = getattr(keras.callbacks, ours.keras_name)
        hooks = {
            name
            for cls in theirs.__mro__
            if not issubclass(keras.callbacks.Callback, cls)
            for name in vars(cls)
            if name.startswith("on_")
        }
        assert hooks <= vars(ours).keys() and hooks


@in_both_keras
def test_nothing_waits_where_the_first_rank_alone_saves_after_a_batch(package, tmp_path):
    model = compiled(keras_of(package))
    x, y = data(seed=hvd.rank())
    file = tmp_path / f"{hvd.rank()}.weights.h5"
    callback = hvd.callbacks.ModelCheckpoint(file, save_weights_only=True, save_freq=1)
    model.fit(x, y, batch_size=4, verbose=0, callbacks=[callback])
    assert file.exists() == (hvd.rank() == 0)


def test_the_first_rank_is_that_of_the_process_set(tmp_path):
    last = tfhvd.add_process_set([hvd.size() - 1])
    if last.included():
        model = compiled(keras_of("keras"), process_set=last)
        model.fit(*data(seed=0), verbose=0, callbacks=writers(tmp_path))
        assert {path.name for path in tmp_path.iterdir()} >= {"log.csv", "logs", "best.keras"}
    hvd.barrier()
    tfhvd.remove_process_set(last)


HOOKS = ["train_batch_begin", "train_batch_end", "test_batch_begin", "test_batch_end", "test_end"]


@in_both_keras
@pytest.mark.parametrize("hook", first_of([*HOOKS, "epoch_end", "train_end"]))
def test_who_takes_over_in_the_middle_goes_on_from_there(package, hook, tmp_path, monkeypatch):
    """As in an elastic job where the first rank is lost: whatever has begun by then has begun."""
    keras = keras_of(package)
    model = compiled(keras)
    told = []

    def tell(callback, hook, *args, **kwargs):
        told.append(hook)
        FirstRankCallback.tell(callback, hook, *args, **kwargs)

    def has_come(first, model):
        if first.here or told[-1] != f"on_{hook}" or hvd.rank() != 1:
            return False
        first.here = True
        monkeypatch.setattr(first, "find", lambda model: None)
        return True

    monkeypatch.setattr(hvd.callbacks.TensorBoard, "tell", tell, raising=False)
    monkeypatch.setattr(FirstRank, "has_come", has_come)
    monkeypatch.setattr(FirstRankCallback, "_may_write", True)
    x, y = data(seed=0)
    folder = tmp_path / str(hvd.rank())
    writes = hvd.callbacks.TensorBoard(folder, update_freq=1, write_steps_per_second=True)
    model.fit(x, y, epochs=2, verbose=0, callbacks=[writes], validation_data=(x, y))
    found = scalars(folder / "train")
    # tf_keras has no hooks of batches of a validation.
    takes_over = hvd.rank() == 1 and f"on_{hook}" in told and hook != "train_end"
    assert ("epoch_loss" in found) == (hvd.rank() == 0 or takes_over)
    # The moment at which a batch began is known, though the rank did not write yet.
    assert all(rate > 1e-3 for rate in found.get("batch_steps_per_second", ()))


def test_what_writes_metrics_comes_behind_what_joins_them(caplog, tmp_path):
    file = tmp_path / f"{hvd.rank()}.csv"
    log = hvd.callbacks.CSVLogger(file)
    for callbacks in ([log, hvd.callbacks.MetricAverageCallback()], [log]):
        caplog.clear()
        model = compiled(keras_of("keras"))
        model.fit(*data(seed=hvd.rank()), verbose=0, callbacks=callbacks)
        joins = hvd.rank() == 0 and len(callbacks) == 2
        said = [r.getMessage() for r in caplog.records if "moves CSVLogger" in r.getMessage()]
        assert len(said) == joins
        if joins:
            user_messages.check("a callback before MetricAverageCallback", *said)
            [row] = csv.DictReader(file.read_text().splitlines())
            assert float(row["loss"]) == model.history.history["loss"][0]


def test_they_are_keras_own():
    for ours in CALLBACKS:
        assert issubclass(ours, FirstRankCallback)
        assert issubclass(ours, getattr(tf.keras.callbacks, ours.keras_name))


@pytest.mark.parametrize("name", ["TensorBoard", "MetricsCallback"])
def test_a_package_that_is_missing_is_said_by_the_constructor(name, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(ImportError) as raised:
        getattr(hvd.callbacks, name)(tmp_path)
    text = str(raised.value).replace(name, "TensorBoard", 1)
    user_messages.check("a package that a callback needs", text)
