"""`fit` in several threads of a process."""

import threading

import pytest
from flavours import assert_same_on_all_ranks, data, in_both_keras, keras_of, make_model

import tfhvd.keras as hvd

pytestmark = pytest.mark.ranks(2)


def _compiled(keras):
    model = make_model(keras)
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), loss="mse")
    return model


def _fit(model, callbacks=()):
    x, y = data(seed=hvd.rank())
    broadcast = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    model.fit(x, y, epochs=2, verbose=0, callbacks=[broadcast, *callbacks])


@in_both_keras
def test_a_second_one_is_refused_while_the_first_goes_on(package):
    keras = keras_of(package)
    first, second = _compiled(keras), _compiled(keras)
    has_begun, may_go_on = threading.Event(), threading.Event()

    class Wait(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            has_begun.set()
            may_go_on.wait()

    thread = threading.Thread(target=_fit, args=(first, [Wait()]))
    thread.start()
    has_begun.wait()
    try:
        with pytest.raises(RuntimeError, match=rf"^rank {hvd.rank()}: fit .* its own process_set"):
            _fit(second)
    finally:
        may_go_on.set()
        thread.join()
    _fit(second)
    for model in (first, second):
        assert_same_on_all_ranks(model.trainable_variables)


@in_both_keras
def test_in_another_thread_each(package):
    model = _compiled(keras_of(package))
    for _ in range(2):
        thread = threading.Thread(target=_fit, args=(model,))
        thread.start()
        thread.join()
    assert int(model.optimizer.iterations) > 2
    assert_same_on_all_ranks(model.trainable_variables)


@in_both_keras
def test_in_a_callback_of_another(package):
    keras = keras_of(package)
    outer, inner = _compiled(keras), _compiled(keras)

    class Inner(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            _fit(inner)

    _fit(outer, [Inner()])
    for model in (outer, inner):
        assert_same_on_all_ranks(model.trainable_variables)
