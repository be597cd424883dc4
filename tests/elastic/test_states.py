"""hvd.elastic: states, what `run` does with them, and the callbacks."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
import tensorflow as tf
from variants import also

import tfhvd.keras as hvd

pytestmark = pytest.mark.ranks(1, 2)


def test_objects_are_saved_restored_and_rank_0s():
    state = hvd.elastic.ObjectState(epoch=hvd.rank(), seen=[hvd.rank()])
    state.seen.append(7)
    state.restore()
    assert (state.epoch, state.seen) == (hvd.rank(), [hvd.rank()])
    state.seen.append(8)
    state.commit()
    state.seen.append(9)
    state.restore()
    assert state.seen == [hvd.rank(), 8]
    state.sync()
    assert (state.epoch, state.seen) == (0, [0, 8])
    state.epoch = 5
    state.restore()
    assert state.epoch == 0


def test_variables():
    variable = tf.Variable(tf.fill([3], 1.0 + hvd.rank()))
    state = hvd.elastic.TensorFlowState([variable], step=1)
    variable.assign([9.0, 9.0, 9.0])
    state.restore()
    assert variable.numpy().tolist() == [1.0 + hvd.rank()] * 3
    state.sync()
    assert variable.numpy().tolist() == [1.0] * 3
    with pytest.raises(ValueError, match="session"):
        hvd.elastic.TensorFlowState([variable], session=object())


def make(keras):
    keras.utils.set_random_seed(1 + hvd.rank())
    model = keras.Sequential([keras.layers.Dense(2), keras.layers.Dense(1)])
    model.build((None, 3))
    model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)), loss="mse")
    return model


@pytest.mark.parametrize("package", ["keras", also("tf_keras")])
def test_a_model_its_optimizer_and_the_callbacks(package):
    keras = importlib.import_module(package)
    model = make(keras)
    state = hvd.elastic.KerasState(model, epoch=0, batch=0)
    assert state.optimizer is model.optimizer
    batches, epochs = [], []

    class Seen(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            batches.append(state.batch)

        def on_epoch_end(self, epoch, logs=None):
            epochs.append((state.epoch, state.batch))

    @hvd.elastic.run
    def train(state, more):
        callbacks = [
            hvd.elastic.UpdateBatchStateCallback(state),
            hvd.elastic.UpdateEpochStateCallback(state),
            hvd.elastic.CommitStateCallback(state, batches_per_commit=2),
            Seen(),
        ]
        x = np.ones((8, 3), np.float32)
        for _ in range(2):
            model.fit(x, x[:, :1], batch_size=2, epochs=1, verbose=0, callbacks=callbacks)
        return more

    assert train(state, more="done") == "done"
    assert batches == [1, 2, 3, 4] * 2
    assert epochs == [(1, 0), (2, 0)]
    trained = [np.array(value) for value in model.get_weights()]
    every = hvd.allgather(tf.constant(trained[0])[tf.newaxis])
    np.testing.assert_array_equal(every, np.stack([trained[0]] * hvd.size()))
    model.set_weights([np.zeros_like(value) for value in trained])
    state.restore()
    for value, expected in zip(model.get_weights(), trained):
        np.testing.assert_array_equal(value, expected)


class Counting(hvd.elastic.State):
    def __init__(self):
        super().__init__()
        self.calls = []

    def save(self):
        self.calls.append("save")

    def restore(self):
        self.calls.append("restore")

    def sync(self):
        self.calls.append("sync")

    def reset(self):
        self.calls.append("reset")


@pytest.mark.parametrize("skip_sync", [True, False])
def test_the_function_is_called_anew_after_an_interrupt(skip_sync):
    state = Counting()
    state.register_reset_callbacks([lambda: state.calls.append("callback")])

    @hvd.elastic.run
    def train(state):
        state.calls.append("train")
        if state.calls.count("train") < 3:
            raise hvd.elastic.HostsUpdatedInterrupt(skip_sync)
        return len(state.calls)

    again = ["reset", "callback", *([] if skip_sync else ["sync"]), "train"]
    assert train(state) == len(state.calls)
    assert state.calls == ["sync", "train", *again, *again]


@pytest.mark.parametrize(
    "error", [tf.errors.AbortedError(None, None, "rank 1 is lost"), hvd.PeerLostError("rank 1")]
)
def test_a_lost_rank_without_which_nothing_goes_on(error):
    @hvd.elastic.run
    def train(state):
        raise error

    with pytest.raises(hvd.elastic.HorovodInternalError, match="rank 1") as raised:
        train(Counting())
    assert raised.value.__cause__ is error


def test_elsewhere_than_in_an_elastic_job_a_commit_only_saves():
    state = Counting()
    state.commit()
    assert state.calls == ["save"]
