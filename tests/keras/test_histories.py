"""What ranks tell each other of a `fit`."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tfhvd.keras.joining import histories


def test_what_keras_notes_is_written():
    loss, confusion = [np.float32(0.5), float("nan")], [np.eye(2)]
    written = histories.as_bytes([[0, 1], {"loss": loss, "confusion": confusion}])
    assert written is not None
    epochs, history = json.loads(written)
    assert epochs == [0, 1] and history["confusion"] == [[[1.0, 0.0], [0.0, 1.0]]]
    assert history["loss"][0] == 0.5 and np.isnan(history["loss"][1])


def test_what_a_callback_of_the_users_puts_there_may_be_anything():
    assert histories.as_bytes([[0], {"plots": [object()]}]) is None


@pytest.mark.parametrize("package", ["keras", "tf_keras"])
def test_a_model_gets_the_history_of_a_fit_that_it_does_not_do(package):
    keras = pytest.importorskip(package)
    model = keras.Sequential([keras.layers.Dense(1)])
    assert histories.history_of(model) in (None, b"[[], {}]")
    model.compile("sgd", "mse")
    model.fit(np.ones([4, 2]), np.ones([4, 1]), epochs=2, verbose=0)
    written = histories.history_of(model)
    other = keras.Sequential([keras.layers.Dense(1)])
    assert written is not None
    histories.set_history(other, written)
    assert isinstance(other.history, keras.callbacks.History)
    assert other.history.epoch == [0, 1] and other.history.history == model.history.history
