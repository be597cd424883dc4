"""`fit` says after its first step which variables ranks update from gradients of their own."""

import copy

import numpy as np
import pytest
import tensorflow as tf
from flavours import (
    MODES,
    data,
    in_both_keras,
    in_every_way,
    keras_of,
    make_model,
    mean_square,
)
from variants import also

import tfhvd
import tfhvd.keras as hvd
from tfhvd.keras.checks.sync_check import UpdateCheck
from tfhvd.ops import sync_monitor

pytestmark = pytest.mark.ranks(2)

refused = pytest.raises(tfhvd.NotSynchronizedError)


def sgd(keras):
    return keras.optimizers.SGD(0.05)


def built_sgd(keras, model):
    """One that is asked for a part of the variables at a time."""
    optimizer = sgd(keras)
    optimizer.build(model.trainable_variables)
    return optimizer


def adam(keras):
    return hvd.DistributedOptimizer(keras.optimizers.Adam(0.01))


def of_all_ranks():
    """Callbacks that every rank must have: so there is no doubt that all are in this `fit`."""
    return [hvd.BroadcastGlobalVariablesCallback(0), hvd.MetricAverageCallback()]


def fit(model, samples=8, **arguments):
    model.fit(*data(seed=hvd.rank(), samples=samples), batch_size=4, verbose=0, **arguments)


def compiled(keras, optimizer, mode="graph"):
    model = make_model(keras)
    model.compile(optimizer, keras.losses.MeanSquaredError(), **MODES[mode])
    return model


class TestPlainOptimizers:
    @in_every_way
    def test_is_an_error(self, package, mode):
        keras = keras_of(package)
        model = compiled(keras, sgd(keras), mode)
        with refused as error:
            fit(model, callbacks=of_all_ranks(), epochs=3)
        assert int(model.optimizer.iterations) == 1
        text = str(error.value)
        assert f"After the first step of fit on rank {hvd.rank()}: 4 trainable variables" in text
        assert "differ between the 2 ranks" in text
        assert "kernel" in text
        assert "model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(...)), ...)" in text
        assert "TFHVD_CHECK_SYNC=warn" in text

    @in_both_keras
    def test_without_anything_of_tfhvd(self, package, monkeypatch):
        monkeypatch.setattr(UpdateCheck, "_is_alone", False)
        keras = keras_of(package)
        with refused:
            fit(compiled(keras, sgd(keras)))

    def test_with_one_of_the_callbacks(self):
        keras = keras_of("keras")
        for callback in of_all_ranks():
            with refused:
                fit(compiled(keras, sgd(keras)), callbacks=[callback])

    def test_on_ranks_that_train_one_after_the_other(self, monkeypatch):
        """Each trains a model of its own, while the others wait."""
        monkeypatch.setattr(UpdateCheck, "_is_alone", True)
        keras = keras_of("keras")
        for rank in range(hvd.size()):
            if rank == hvd.rank():
                fit(compiled(keras, sgd(keras)), epochs=2)
            hvd.barrier()

    @pytest.mark.thorough
    @pytest.mark.variant
    @pytest.mark.parametrize("way", ["clone", "file", also("copy")])
    def test_of_a_copied_model(self, way, tmp_path):
        keras = keras_of("keras")
        model = compiled(keras, adam(keras))
        fit(model)
        if way == "clone":
            twin = keras.models.clone_model(model)
            config = keras.optimizers.serialize(model.optimizer)
            twin.compile(keras.optimizers.deserialize(config), "mse")
        elif way == "file":
            model.save(tmp_path / "model.keras")
            twin = keras.models.load_model(tmp_path / "model.keras")
        else:
            twin = copy.deepcopy(model)
        assert not hvd.is_distributed(twin.optimizer)
        with refused as error:
            fit(twin, callbacks=of_all_ranks())
        assert "hvd.load_model(path)" in str(error.value)

    @in_both_keras
    def test_in_a_train_step(self, package):
        keras = keras_of(package)
        model = in_own_step(keras, tf.GradientTape)
        model.compile(sgd(keras), **MODES["graph"])
        with refused as error:
            fit(model, callbacks=of_all_ranks())
        assert "hvd.DistributedGradientTape(tape)" in str(error.value)

    @in_both_keras
    def test_one_of_two_tapes(self, package):
        """No callback says that all ranks are here; the other tape does."""
        keras = keras_of(package)
        model = in_own_step(keras, hvd.DistributedGradientTape, tf.GradientTape)
        model.compile(built_sgd(keras, model), **MODES["graph"])
        with refused as error:
            fit(model)
        text = str(error.value)
        assert ": 2 trainable variables" in text
        for variable, named in zip(model.trainable_variables, [False, False, True, True]):
            name = getattr(variable, "path", variable.name.partition(":")[0])
            assert (name in text) == named


def in_own_step(keras, *tapes):
    """A model whose train_step takes a part of the gradients from each tape."""

    class Own(keras.Model):
        def train_step(self, batch):
            x, y = batch[0], batch[1]
            variables, loss = self.trainable_variables, None
            part = len(variables) // len(tapes)
            for number, make in enumerate(tapes):
                tape = tf.GradientTape() if make is tf.GradientTape else make(tf.GradientTape())
                with tape:
                    loss = mean_square(y, self(x, training=True))
                own = variables[part * number : part * (number + 1)]
                self.optimizer.apply_gradients(zip(tape.gradient(loss, own), own))
            return {"loss": loss}

    hvd.DistributedOptimizer(sgd(keras))  # From here on `fit` of this Keras is looked at.
    plain = make_model(keras)
    model = Own(plain.inputs, plain.outputs)
    return model


class ByHand:
    """An optimizer that reduces by itself, as Horovod's users wrote them."""

    def __new__(cls, keras):
        class Reducing(keras.optimizers.SGD):
            def apply_gradients(self, grads_and_vars, **arguments):
                pairs = [(hvd.allreduce(g), v) for g, v in grads_and_vars]
                return super().apply_gradients(pairs, **arguments)

        return Reducing(0.05)


class TestSilence:
    @in_every_way
    def test_distributed(self, package, mode):
        keras = keras_of(package)
        model = compiled(keras, adam(keras), mode)
        for _ in range(2):
            fit(model, callbacks=of_all_ranks(), epochs=2)

    @in_both_keras
    @pytest.mark.parametrize("mode", ["graph", also("eager")])
    def test_accumulated(self, package, mode):
        keras = keras_of(package)
        optimizer = hvd.DistributedOptimizer(sgd(keras), backward_passes_per_step=2)
        fit(compiled(keras, optimizer, mode), samples=16, callbacks=of_all_ranks())

    @in_both_keras
    def test_reduced_by_hand(self, package):
        keras = keras_of(package)
        fit(compiled(keras, ByHand(keras)), callbacks=of_all_ranks())

    @in_every_way
    def test_tapes(self, package, mode):
        keras = keras_of(package)
        model = in_own_step(keras, hvd.DistributedGradientTape, hvd.DistributedGradientTape)
        model.compile(built_sgd(keras, model), **MODES[mode])
        fit(model, callbacks=of_all_ranks())

    @in_both_keras
    def test_frozen_and_local_variables(self, package):
        keras = keras_of(package)
        model = make_model(keras)
        model.layers[0].trainable = False
        optimizer = hvd.PartialDistributedOptimizer(sgd(keras), local_layers=model.layers[1])
        model.compile(optimizer, "mse", **MODES["graph"])
        fit(model, callbacks=of_all_ranks())
        model = compiled(keras, hvd.DistributedOptimizer(sgd(keras)))
        for variable in model.trainable_variables[:2]:
            model.optimizer.register_local_var(variable)
        fit(model, callbacks=of_all_ranks())

    @in_both_keras
    def test_variables_without_a_gradient(self, package):
        keras = keras_of(package)
        inputs = keras.layers.Input((4,))
        unused = keras.layers.Dense(1)(inputs)
        model = keras.Model(inputs, [keras.layers.Dense(1)(inputs), unused])
        optimizer = hvd.DistributedOptimizer(sgd(keras))
        model.compile(optimizer, ["mse", None], **MODES["graph"])
        x, y = data(seed=hvd.rank())
        model.fit(x, [y, y], verbose=0, callbacks=of_all_ranks())

    def test_loss_scale(self):
        keras = keras_of("keras")
        for wrap_inside in (False, True):
            optimizer = hvd.DistributedOptimizer(sgd(keras)) if wrap_inside else sgd(keras)
            optimizer = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=8.0)
            optimizer = optimizer if wrap_inside else hvd.DistributedOptimizer(optimizer)
            assert hvd.is_distributed(optimizer)
            fit(compiled(keras, optimizer), callbacks=of_all_ranks())

    @in_both_keras
    def test_evaluation(self, package):
        keras = keras_of(package)
        model = compiled(keras, sgd(keras))
        x, y = data(seed=hvd.rank())
        model.evaluate(x, y, verbose=0)
        assert model.predict(x, verbose=0).shape == (8, 1)

    def test_nothing_is_trained(self):
        keras = keras_of("keras")
        model = make_model(keras)
        model.trainable = False
        model.compile(sgd(keras), "mse", **MODES["graph"])
        fit(model, callbacks=of_all_ranks())


class TestSetting:
    def test_warn(self, monkeypatch, caplog):
        monkeypatch.setattr(sync_monitor, "_setting", lambda: "WARN")
        keras = keras_of("keras")
        model = compiled(keras, sgd(keras))
        fit(model, callbacks=of_all_ranks(), epochs=2)
        fit(model, callbacks=of_all_ranks())
        said = [r for r in caplog.records if "gradients of this rank alone" in r.getMessage()]
        assert len(said) == 1
        assert int(model.optimizer.iterations) == 6

    def test_off(self, monkeypatch, caplog):
        monkeypatch.setattr(sync_monitor, "_setting", lambda: "OFF")
        keras = keras_of("keras")
        fit(compiled(keras, sgd(keras)), callbacks=of_all_ranks())
        assert not caplog.records

    def test_it_is_an_error_unless_set(self):
        assert sync_monitor._setting() == "ERROR"


@pytest.mark.ranks(1)
def test_one_rank_trains_as_it_likes():
    keras = keras_of("keras")
    fit(compiled(keras, sgd(keras)), callbacks=of_all_ranks())


def test_is_distributed():
    for package in ("keras", "tf_keras"):
        keras = keras_of(package)
        assert hvd.is_distributed(adam(keras))
        assert not hvd.is_distributed(sgd(keras))
    legacy = keras_of("tf_keras").optimizers.legacy.SGD(0.1)
    assert hvd.is_distributed(hvd.DistributedOptimizer(legacy))
    old = tf.compat.v1.train.GradientDescentOptimizer(0.1)
    assert not tfhvd.is_distributed(old)
    assert tfhvd.is_distributed(tfhvd.DistributedOptimizer(old))
    assert not tfhvd.is_distributed(None)
    assert not tfhvd.is_distributed(tfhvd.DistributedGradientTape(tf.GradientTape()))
    assert not tfhvd.is_distributed(np.zeros(3))
