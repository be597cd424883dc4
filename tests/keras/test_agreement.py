"""Ranks begin where rank 0 does, and take its learning rates."""

import numpy as np
import pytest
import tensorflow as tf
from flavours import assert_same_on_all_ranks, data, in_both_keras, keras_of, make_model, values

import tfhvd
import tfhvd.keras as hvd
from tfhvd.compat.training import optimizers_of
from tfhvd.keras.fit import start
from tfhvd.keras.wrap import learning_rate

pytestmark = pytest.mark.ranks(2)


def compiled(keras, optimizer=None, seed=0, **arguments):
    model = make_model(keras, seed)
    optimizer = optimizer or keras.optimizers.SGD(0.5, momentum=0.9)
    model.compile(hvd.DistributedOptimizer(optimizer, **arguments), "mse", jit_compile=False)
    return model


def fit(model, callbacks=(), **arguments):
    x, y = data(seed=hvd.rank())
    return model.fit(x, y * 0.01, batch_size=4, verbose=0, callbacks=list(callbacks), **arguments)


def state(model):
    variables = model.optimizer.variables
    return [*model.weights, *(variables() if callable(variables) else variables)]


def notes(keras, epochs, rates):
    """A callback that notes each epoch, and the learning rate that it was trained with."""
    return keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: epochs.append(epoch),
        on_epoch_end=lambda epoch, logs: rates.append(learning_rate.get(rates.model.optimizer)),
    )


class Rates(list):
    model = None


class TestStart:
    @in_both_keras
    @pytest.mark.parametrize("order", ["broadcast first", "backup first"])
    def test_a_backup_on_rank_0_alone(self, package, order, tmp_path, caplog):
        keras = keras_of(package)
        rates = Rates()

        class Fails(keras.callbacks.Callback):
            def on_epoch_begin(self, epoch, logs=None):
                if epoch == 2:
                    raise KeyboardInterrupt

        def callbacks():
            own = [hvd.BroadcastGlobalVariablesCallback(0)]
            if hvd.rank() == 0:
                backup = keras.callbacks.BackupAndRestore(tmp_path / "backup")
                own.insert(1 if order == "broadcast first" else 0, backup)
            return own

        model = compiled(keras)
        with pytest.raises(KeyboardInterrupt):
            fit(model, [*callbacks(), Fails()], epochs=5)
        expected = values(state(model))
        # The job begins anew, and rank 0 has a backup of two epochs.
        again = compiled(keras, seed=7 + hvd.rank())
        begun, epochs = [], []
        rates.model = again
        note = keras.callbacks.LambdaCallback(
            on_train_batch_begin=lambda batch, logs: begun or begun.extend(values(state(again)))
        )
        history = fit(again, [*callbacks(), note, notes(keras, epochs, rates)], epochs=5)
        assert epochs == history.epoch == [2, 3, 4]
        for actual, value in zip(begun, expected):
            np.testing.assert_array_equal(actual, value)
        assert_same_on_all_ranks(state(again))
        assert int(again.optimizer.iterations) == 10
        assert ("continues from rank 0's state" in caplog.text) == (hvd.rank() != 0)

    @in_both_keras
    @pytest.mark.parametrize("epochs", [(0, 2), (2, 0)])
    def test_other_initial_epochs(self, package, epochs, caplog):
        keras = keras_of(package)
        model = compiled(keras)
        history = fit(model, initial_epoch=epochs[hvd.rank()], epochs=4)
        assert history.epoch == list(range(epochs[0], 4))
        assert_same_on_all_ranks(state(model))
        assert (f"epoch {epochs[1]}, step 0 here" in caplog.text) == (hvd.rank() == 1)
        assert fit(model, epochs=1).epoch == [0]

    def test_tapes_in_a_train_step(self, caplog):
        """They are not known before the first step: its epoch is not to be changed any more."""
        keras = keras_of("keras")

        class Taped(keras.Model):
            def train_step(self, batch):
                with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
                    loss = tf.reduce_mean(tf.square(self(batch[0]) - batch[1]))
                gradients = tape.gradient(loss, self.trainable_variables)
                self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
                return {"loss": loss}

        plain = make_model(keras)
        model = Taped(plain.inputs, plain.outputs)
        model.compile(keras.optimizers.SGD(0.1), jit_compile=False)
        fit(model, initial_epoch=2 if hvd.rank() == 0 else 0, epochs=4)
        assert_same_on_all_ranks(state(model))

    def test_nothing_is_said_where_all_is_alike(self, caplog):
        model = compiled(keras_of("keras"))
        fit(model, epochs=3, initial_epoch=1)
        fit(model, epochs=2)
        assert not caplog.records


class TestLearningRates:
    @in_both_keras
    @pytest.mark.parametrize("rank", [0, 1])
    def test_a_callback_on_one_rank(self, package, rank, caplog):
        keras = keras_of(package)
        rates = Rates()
        rates.model = model = compiled(keras)
        callbacks = [notes(keras, [], rates)]
        if hvd.rank() == rank:
            callbacks.append(
                keras.callbacks.LearningRateScheduler(lambda epoch, rate: 0.5 / (1 + epoch))
            )
        fit(model, callbacks, epochs=3)
        expected = [0.5, 0.25, 0.5 / 3] if rank == 0 else [0.5] * 3
        np.testing.assert_allclose(rates, expected, rtol=1e-6)
        assert_same_on_all_ranks(state(model))
        said = [r for r in caplog.records if "learning rate" in r.getMessage()]
        assert len(said) == (hvd.rank() == 1)  # once
        if said:
            assert "fit on rank 1 takes rank 0's learning rate, from epoch 1 on" in caplog.text

    @in_both_keras
    def test_what_a_callback_sets_after_an_epoch(self, package):
        keras = keras_of(package)
        model = compiled(keras)
        callbacks = []
        if hvd.rank() == 0:
            callbacks = [
                keras.callbacks.ReduceLROnPlateau(
                    "loss", factor=0.5, patience=1, min_delta=100.0, min_lr=0.0
                )
            ]
        fit(model, callbacks, epochs=4)
        assert float(np.array(model.optimizer.learning_rate)) < 0.5
        assert_same_on_all_ranks(state(model))

    @in_both_keras
    def test_nothing_is_said_of_a_warm_up_with_unequal_numbers_of_batches(self, package, caplog):
        model = compiled(keras_of(package))
        x, y = data(seed=hvd.rank(), samples=8 + 8 * hvd.rank())
        warm_up = hvd.callbacks.LearningRateWarmupCallback(0.5, warmup_epochs=2)
        model.fit(x, 0.01 * y, batch_size=4, epochs=3, verbose=0, callbacks=[warm_up])
        assert_same_on_all_ranks(state(model))
        assert "learning rate" not in caplog.text

    def test_schedules_that_differ(self, caplog):
        keras = keras_of("keras")
        schedule = keras.optimizers.schedules.ExponentialDecay(0.1 + hvd.rank(), 10, 0.9)
        fit(compiled(keras, keras.optimizers.SGD(schedule)))
        assert ("cannot take rank 0's learning rate" in caplog.text) == (hvd.rank() == 1)

    @pytest.mark.ranks(4)
    def test_in_process_sets(self, caplog):
        """The set's first rank is the one that counts."""
        keras = keras_of("keras")
        sets = [tfhvd.add_process_set(ranks) for ranks in ([0, 2], [1, 3])]
        mine = sets[hvd.rank() % 2]
        model = compiled(keras, keras.optimizers.SGD(0.5 + hvd.rank()), process_set=mine)
        fit(model)
        assert float(np.array(model.optimizer.learning_rate)) == 0.5 + hvd.rank() % 2
        assert ("takes rank 1's learning rate" in caplog.text) == (hvd.rank() == 3)
        for process_set in sets:
            tfhvd.remove_process_set(process_set)


def with_rates(*rates):
    """A model with an optimizer for each learning rate."""
    model = make_model(keras_of("keras"), 0)
    model.compile(keras_of("keras").optimizers.SGD(rates[0]), "mse")
    model.others = [keras_of("keras").optimizers.SGD(rate) for rate in rates[1:]]
    return model


def rates_of(model):
    return [learning_rate.get(optimizer) for optimizer in optimizers_of(model)]


@pytest.mark.ranks(1)
def test_numbers_travel_to_the_bit():
    first, other = with_rates(0.1, 3.0), with_rates(1.0, 3.0)
    rates = start.LearningRates(other)
    rates.take(start.LearningRates(first).packed(), root=0, epoch=0)
    assert rates_of(other) == rates_of(first) and len(rates_of(first)) == 2
    no_numbers = np.full(2, np.nan).view(np.int64)
    rates.take(no_numbers, root=0, epoch=0)
    assert rates_of(other) == rates_of(first)
