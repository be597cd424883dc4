"""ProfileCallback: some steps of `fit`, and a report at the end of the epoch."""

import time

import pytest
from flavours import data, in_both_keras, keras_of, make_model
from profile_pages import data_of

import tfhvd.keras as hvd

pytestmark = pytest.mark.ranks(1, 2)


def fit(package, callback, samples=24, epochs=2, callbacks=()):
    keras = keras_of(package)
    model = make_model(keras)
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), "mse")
    x, y = data(seed=hvd.rank(), samples=samples)
    model.fit(x, y, batch_size=2, epochs=epochs, verbose=0, callbacks=[*callbacks, callback])


@in_both_keras
def test_it_prints_once_at_the_end_of_the_first_epoch(package, capfd):
    callback = hvd.callbacks.ProfileCallback(steps=5, skip=3)
    fit(package, callback)
    assert sorted(callback.report.steps) == list(range(hvd.size()))
    assert [len(steps) for steps in callback.report.steps.values()] == [5] * hvd.size()
    assert capfd.readouterr().out.count(" in ms a step:") == (hvd.rank() == 0)


def test_the_first_rank_writes_a_page_of_each_epoch(tmp_path):
    folder = hvd.broadcast_object(str(tmp_path))
    callback = hvd.callbacks.ProfileCallback(steps=5, epochs=2, page=f"{folder}/{{epoch}}.html")
    fit("keras", callback)
    if hvd.rank() == 0:
        for epoch in (0, 1):
            data = data_of((tmp_path / f"{epoch}.html").read_text(encoding="utf-8"))
            assert (data["steps"], data["all_ranks"]) == (5, hvd.size())
        whole = callback.report.seconds(0, "whole")
        assert data["ranks"][0]["whole"] == pytest.approx(whole)  # of the last epoch
    else:
        assert list(tmp_path.iterdir()) == []


@in_both_keras
def test_short_epochs_and_unequal_data(package):
    callback = hvd.callbacks.ProfileCallback(steps=100)
    fit(package, callback, samples=8 + 4 * hvd.rank())
    counts = [len(steps) for steps in callback.report.steps.values()]
    assert all(count >= 1 for count in counts)


@pytest.mark.ranks(2)
@in_both_keras
def test_a_slow_callback_of_one_rank_is_found(package):
    class Slow(keras_of(package).callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            if hvd.rank() == 1:
                time.sleep(0.1)  # longer than others wait for processors on a busy machine

    callback = hvd.callbacks.ProfileCallback(steps=6, skip=4)
    fit(package, callback, callbacks=[Slow()])
    assert (callback.report.straggler.rank, callback.report.straggler.cause) == (1, "other")


def test_what_is_refused():
    with pytest.raises(ValueError, match="at least one step"):
        hvd.callbacks.ProfileCallback(steps=0)
