"""The ranks of a `fit` begin and end with one state, whatever their callbacks have done."""

import numpy as np
import pytest
from flavours import (
    assert_close,
    assert_same_on_all_ranks,
    data,
    in_both_keras,
    keras_of,
    make_model,
    set_seed,
    values,
)
from variants import also

import tfhvd.keras as hvd
from tfhvd.compat import keras as keras_compat
from tfhvd.keras.fit import start

pytestmark = pytest.mark.ranks(2, 4)


def compiled(package, model):
    keras = keras_of(package)
    model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)), "mse")
    return model


def fit(model, **arguments):
    return model.fit(*data(seed=hvd.rank()), batch_size=4, shuffle=False, verbose=0, **arguments)


def plain(keras, seed):
    return make_model(keras, seed)


def deferred(keras, seed):
    """In tf_keras it has no variables before its first batch."""
    set_seed(keras, seed)
    return keras.Sequential([keras.layers.Dense(3), keras.layers.Dense(1)])


@in_both_keras
@pytest.mark.parametrize("make", [plain, also(deferred)])
def test_without_the_callback_all_train_from_rank_0s_weights(package, make, said):
    keras = keras_of(package)
    expected = compiled(package, make(keras, hvd.rank()))
    fit(expected, callbacks=[hvd.BroadcastGlobalVariablesCallback(0)])
    assert not said()
    model = compiled(package, make(keras, hvd.rank()))
    for _ in range(2):
        fit(model)
        assert_same_on_all_ranks(model.trainable_variables)
    [line] = said() if hvd.rank() == 0 else ["All have those of rank 0"]
    assert "All have those of rank 0" in line
    fit(expected)
    assert_close(model.trainable_variables, expected.trainable_variables)


def test_frozen_weights_and_slots_are_rank_0s(said):
    keras = keras_of("keras")
    model = make_model(keras, 0)
    model.layers[0].trainable = False
    compiled("keras", model)
    model.layers[0].kernel.assign(np.full((4, 3), hvd.rank() + 1))
    fit(model)
    np.testing.assert_array_equal(model.layers[0].kernel, np.ones((4, 3)))
    model.optimizer.variables[-1].assign(model.optimizer.variables[-1] + hvd.rank())
    fit(model)
    assert_same_on_all_ranks(keras_compat.optimizer_variables(model.optimizer))
    assert len(said()) == (2 if hvd.rank() == 0 else 0)


def test_equal_ranks_broadcast_nothing(said, monkeypatch):
    taken = []
    monkeypatch.setattr(start, "take_over", lambda *arguments: taken.append(arguments))
    model = compiled("keras", make_model(keras_of("keras"), 0))
    for _ in range(2):
        fit(model)
    assert not taken and not said()


def test_ranks_may_keep_their_own(said):
    model = compiled("keras", make_model(keras_of("keras"), hvd.rank()))
    before = values(model.trainable_variables)
    fit(model, callbacks=[hvd.BroadcastGlobalVariablesCallback(None)])
    for now, then in zip(values(model.trainable_variables), before):
        assert np.abs(now - then).max() < 0.1, "Adam moves a weight by its rate at most"
    assert all("All have" not in text for text in said())


def changing(package, hook, rank, change):
    """A callback of one rank that changes a model in one of its hooks."""

    def act(self, *arguments, logs=None):
        if hvd.rank() == rank:
            change(self.model)

    return type("Changing", (keras_of(package).callbacks.Callback,), {hook: act})()


def add_to_weights(model):
    for variable in model.trainable_variables:
        variable.assign(variable + 5.0)


def add_to_slots(model):
    for variable in keras_compat.optimizer_variables(model.optimizer)[2:]:
        variable.assign(variable + 5.0)


@in_both_keras
@pytest.mark.parametrize("change", [add_to_weights, also(add_to_slots)])
@pytest.mark.parametrize("hook", ["on_train_end", "on_epoch_end", also("on_train_batch_end")])
@pytest.mark.parametrize("rank", [0, also(1)])
def test_what_a_callback_changes_on_one_rank(package, hook, rank, change, said):
    """At the end it is taken over from that rank; before, and said, from the first one."""
    model = compiled(package, make_model(keras_of(package), 0))
    fit(model, callbacks=[changing(package, hook, rank, change)])
    assert_same_on_all_ranks(model.trainable_variables)
    assert_same_on_all_ranks(keras_compat.optimizer_variables(model.optimizer))
    changed = max(np.abs(value).max() for value in values(model.trainable_variables)) > 3
    if change is add_to_weights and (rank == 0 or hook == "on_train_end"):
        assert changed
    if hvd.rank() == 0:
        assert any("at its end the ranks had different weights" in text for text in said())


@in_both_keras
def test_rates_that_a_callback_sets_at_the_end(package, said):
    model = compiled(package, make_model(keras_of(package), 0))

    def set_rate(model):
        model.optimizer.learning_rate = 0.5

    fit(model, callbacks=[changing(package, "on_train_end", 1, set_rate)])
    assert float(model.optimizer.learning_rate) == pytest.approx(0.01)
    assert len(said()) == (hvd.rank() == 1)


@in_both_keras
@pytest.mark.parametrize("ranks", [[0], [1], also([0, 1, 2, 3])])
def test_early_stopping_that_never_stops_puts_back_the_best(package, ranks, said):
    keras = keras_of(package)
    model = compiled(package, make_model(keras, 0))
    best = keras.callbacks.EarlyStopping("note", 0, 50, 0, "min", restore_best_weights=True)
    after = []

    class Note(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            logs["note"] = abs(epoch - 1 - self.rank)
            after.append([np.array(v) for v in self.model.trainable_variables])

    note = Note()
    note.rank = hvd.rank()
    fit(model, epochs=4, callbacks=[note, best] if hvd.rank() in ranks else [note])
    # After the epoch of which rank `ranks[0]` has noted 0.
    assert_close(model.trainable_variables, after[1 + ranks[0]])
    assert_same_on_all_ranks(model.trainable_variables)
    assert len(said()) == (hvd.rank() == 0)
