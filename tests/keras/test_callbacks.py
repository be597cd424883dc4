"""The callbacks, in the fit of both Keras."""

import numpy as np
import pytest
import tensorflow as tf
from flavours import (
    assert_close,
    assert_same_on_all_ranks,
    data,
    in_both_keras,
    keras_of,
    make_model,
    own_gradients,
    set_seed,
    values,
)
from variants import also

import tfhvd
import tfhvd.keras as hvd
from tfhvd.keras.callbacks import metric_average
from tfhvd.keras.wrap import learning_rate

pytestmark = pytest.mark.ranks(2, 4)


def unbuilt_sequential(keras, seed):
    set_seed(keras, seed)
    return keras.Sequential([keras.layers.Dense(3, activation="tanh"), keras.layers.Dense(1)])


def unbuilt_subclass(keras, seed):
    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.hidden = keras.layers.Dense(3, activation="tanh")
            self.out = keras.layers.Dense(1)

        def call(self, x, training=False):
            return self.out(self.hidden(x))

    set_seed(keras, seed)
    return Model()


def own_part(borders):
    """This rank's two of the borders for a job of this size."""
    return borders[hvd.size()][hvd.rank() : hvd.rank() + 2]


def built(keras, seed):
    return make_model(keras, seed)


class TestBroadcast:
    @in_both_keras
    @pytest.mark.parametrize(
        "make", [built, also(unbuilt_sequential), unbuilt_subclass], ids=lambda make: make.__name__
    )
    def test_before_the_first_gradient(self, package, make):
        """All ranks have the same data: with weights of its own, one would have other gradients."""
        keras, root = keras_of(package), 1
        x, y = data(seed=0)
        twin = make(keras, seed=root)  # what the root begins with
        twin(x)
        start, gradients = values(twin.weights), own_gradients(twin, x, y)
        model = make(keras, seed=hvd.rank())
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.125, momentum=0.9))
        model.compile(optimizer, keras.losses.MeanSquaredError())
        callback = hvd.BroadcastGlobalVariablesCallback(root)
        model.fit(x, y, batch_size=len(x), verbose=0, callbacks=[callback])
        assert_close(model.weights, [w - 0.125 * g for w, g in zip(start, values(gradients))])

    @in_both_keras
    def test_covers_the_optimizers_state(self, package):
        """Rank 0 has trained before, alone; the others take over where it is."""
        keras = keras_of(package)
        model = make_model(keras, seed=hvd.rank())
        plain = keras.optimizers.Adam(0.01)
        x, y = data(seed=0)
        if hvd.rank() == 0:
            for _ in range(3):
                plain.apply_gradients(zip(own_gradients(model, x, y), model.trainable_variables))
        model.compile(hvd.DistributedOptimizer(plain), keras.losses.MeanSquaredError())
        model.fit(x, y, verbose=0, callbacks=[hvd.BroadcastGlobalVariablesCallback(0)])
        assert int(model.optimizer.iterations) == 4
        assert_same_on_all_ranks([*model.weights, *model.optimizer.variables])

    @in_both_keras
    def test_where_only_one_rank_has_built_its_model(self, package):
        """And has made another one before, so that Keras numbers the layers otherwise."""
        keras = keras_of(package)
        model = unbuilt_sequential(keras, seed=hvd.rank())
        x, y = data(seed=0)
        if hvd.rank() == 0:
            unbuilt_sequential(keras, seed=0)(x)
            model = unbuilt_sequential(keras, seed=0)
            model(x)
        model.compile(
            hvd.DistributedOptimizer(keras.optimizers.Adam()), keras.losses.MeanSquaredError()
        )
        model.fit(x, y, verbose=0, callbacks=[hvd.BroadcastGlobalVariablesCallback(0)])
        assert_same_on_all_ranks(model.weights)

    @in_both_keras
    def test_local_variables_stay(self, package):
        keras = keras_of(package)
        model = make_model(keras, seed=hvd.rank())
        own = [model.layers[0].kernel, model.layers[1].bias]
        before = [values(own), hvd.broadcast_object(values(model.weights), root_rank=0)]
        callback = hvd.BroadcastGlobalVariablesCallback(0, local_variables=own[:1])
        callback.register_local_var(own[1])
        still = hvd.DistributedOptimizer(keras.optimizers.SGD(0.0))
        model.compile(still, keras.losses.MeanSquaredError())
        x, y = data(seed=0)
        model.fit(x, y, verbose=0, callbacks=[callback])
        assert_close(own, before[0])
        assert_close(model.weights[1:3], before[1][1:3])

    @in_both_keras
    @pytest.mark.parametrize("built_on", [also([]), [0], also([1])])
    def test_several_optimizers(self, package, built_on):
        """In a list and in a dict, as a GAN may have them; each for its part of the model."""
        keras = keras_of(package)
        parts = [make_model(keras, seed=hvd.rank() + 10 * part) for part in range(2)]

        class Pair(keras.Model):
            def __init__(self):
                super().__init__()
                self.parts = parts
                kinds = [keras.optimizers.Adam(0.01 + hvd.rank()) for _ in parts]
                first, second = map(hvd.DistributedOptimizer, kinds)
                self.own = {"optimizers": [first], "other": {"second": second}}

            def train_step(self, batch):
                optimizers = (self.own["optimizers"][0], self.own["other"]["second"])
                for part, optimizer in zip(self.parts, optimizers):
                    with tf.GradientTape() as tape:
                        loss = tf.reduce_mean(tf.square(part(batch[0]) - batch[1]))
                    variables = part.trainable_variables
                    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
                return {"loss": loss}

            def call(self, x):
                return sum(part(x) for part in self.parts)

        model = Pair()
        model.compile()
        x, y = data(seed=hvd.rank(), samples=8 + 4 * hvd.rank())
        optimizers = [model.own["optimizers"][0], model.own["other"]["second"]]
        if hvd.rank() in built_on:
            for part, optimizer in zip(parts, optimizers):
                optimizer.build(part.trainable_variables)
        callback = hvd.BroadcastGlobalVariablesCallback(0)
        model.fit(x, y, batch_size=4, verbose=0, callbacks=[callback], epochs=2)
        for part, optimizer in zip(parts, optimizers):
            assert_same_on_all_ranks([*part.weights, *optimizer.variables])
            assert int(optimizer.iterations) == 2 * (1 + hvd.size())
            assert learning_rate.get(optimizer) == pytest.approx(0.01)
            if not built_on:
                assert len(list(optimizer.variables)) < 3 + 2 * 8  # of its own part alone

    def test_legacy_optimizer(self):
        keras = keras_of("tf_keras")
        model = make_model(keras, seed=hvd.rank())
        legacy = keras.optimizers.legacy.SGD(0.1, momentum=0.9)
        model.compile(hvd.DistributedOptimizer(legacy), keras.losses.MeanSquaredError())
        x, y = data(seed=hvd.rank())
        model.fit(x, y, verbose=0, callbacks=[hvd.BroadcastGlobalVariablesCallback(0)])
        assert_same_on_all_ranks([*model.weights, *model.optimizer.variables()])


class TestProcessSets:
    """Two sets train models of their own, at their own pace."""

    @pytest.mark.ranks(4)
    @in_both_keras
    def test_callbacks_follow_the_optimizers(self, package, tmp_path):
        keras = keras_of(package)
        best = tmp_path / f"{hvd.rank()}.weights.h5"
        sets = [tfhvd.add_process_set(ranks) for ranks in ([0, 2], [1, 3])]
        mine = sets[hvd.rank() % 2]
        model = make_model(keras, seed=hvd.rank())
        model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.5), process_set=mine), "mse")
        x, y = data(seed=hvd.rank())
        rates = Watch(keras)
        callbacks = [
            hvd.BroadcastGlobalVariablesCallback(mine.ranks[0]),
            hvd.MetricAverageCallback(),
            hvd.LearningRateWarmupCallback(0.5, warmup_epochs=1),
            hvd.BestModelCheckpoint("loss", filepath=best, save_weights_only=True),
            rates,
        ]
        history = model.fit(x, y * 0.01, verbose=0, epochs=2 + hvd.rank() % 2, callbacks=callbacks)
        assert rates.rates[0] == 0.25
        assert best.exists() == (mine.rank() == 0)
        seen = [history.history["loss"], *values(model.weights)]
        for rank, others in enumerate(hvd.allgather_object(seen)):
            if rank in mine.ranks:
                for own, other in zip(seen, others):
                    np.testing.assert_array_equal(own, other)
        with pytest.raises(ValueError, match=r"Expected: one of \[[01], [23]\]"):
            wrong = hvd.BroadcastGlobalVariablesCallback(1 - mine.ranks[0])
            model.fit(x, y, verbose=0, callbacks=[wrong])
        hvd.barrier()
        for process_set in sets:
            tfhvd.remove_process_set(process_set)


class Watch:
    """Makes a callback that keeps what it sees of each epoch's logs and each batch's rate."""

    def __new__(cls, keras):
        class Callback(keras.callbacks.Callback):
            def __init__(self):
                super().__init__()
                self.logs, self.rates = [], []

            def on_train_batch_end(self, batch, logs=None):
                self.rates.append(float(self.model.optimizer.learning_rate))

            def on_epoch_end(self, epoch, logs=None):
                self.logs.append(dict(logs))

        return Callback()


class TestMetricAverage:
    @in_both_keras
    def test_averages_for_all_that_follow(self, package):
        keras = keras_of(package)
        model = make_model(keras)
        still = hvd.DistributedOptimizer(keras.optimizers.SGD(0.0))
        model.compile(still, keras.losses.MeanSquaredError(), metrics=["mae"])
        x, y = data(seed=hvd.rank())
        own = model.evaluate(x, y, verbose=0, return_dict=True)
        mean = {k: np.mean([o[k] for o in hvd.allgather_object(own)]) for k in own}
        watch = Watch(keras)
        history = model.fit(
            x, y, epochs=2, verbose=0, callbacks=[hvd.MetricAverageCallback(), watch]
        )
        for logs in [*watch.logs, {k: v[-1] for k, v in history.history.items()}]:
            assert logs.keys() == mean.keys()
            np.testing.assert_allclose([logs[k] for k in mean], list(mean.values()), rtol=1e-5)

    @in_both_keras
    @pytest.mark.parametrize("validate", [False, True])
    def test_each_sample_counts_once(self, package, validate):
        """Ranks with unequal data report what one rank reports of all of it."""
        keras = keras_of(package)
        model = make_model(keras)
        still = hvd.DistributedOptimizer(keras.optimizers.SGD(0.0))
        model.compile(still, keras.losses.MeanSquaredError(), metrics=["mae"])
        x, y = data(seed=7, samples=20)
        expected = model.evaluate(x, y, verbose=0, return_dict=True)
        of_validation = model.evaluate(x[:9], y[:9], verbose=0, return_dict=True)
        expected.update({f"val_{k}": v for k, v in of_validation.items()} if validate else {})
        mine = slice(*own_part({2: [0, 15, 20], 4: [0, 10, 15, 18, 20]}))
        checked = slice(*own_part({2: [0, 2, 9], 4: [0, 2, 5, 6, 9]}))
        history = model.fit(
            x[mine],
            y[mine],
            batch_size=4,
            verbose=0,
            validation_data=(x[checked], y[checked]) if validate else None,
            callbacks=[hvd.MetricAverageCallback()],
        )
        assert history.history.keys() == expected.keys()
        for key, value in expected.items():
            np.testing.assert_allclose(history.history[key], [value], rtol=1e-5, err_msg=key)

    @in_both_keras
    def test_ranks_that_report_different_metrics(self, package, caplog):
        """Only rank 0 validates, and every rank stops early when rank 0 would."""
        metric_average._report_once.cache_clear()
        keras = keras_of(package)
        model = make_model(keras)
        model.compile(
            hvd.DistributedOptimizer(keras.optimizers.SGD(0.0)), keras.losses.MeanSquaredError()
        )
        x, y = data(seed=hvd.rank())
        callbacks = [
            hvd.MetricAverageCallback(),
            keras.callbacks.EarlyStopping("val_loss", patience=2),
        ]
        history = model.fit(
            x,
            y,
            epochs=10,
            verbose=0,
            validation_data=(x, y) if hvd.rank() == 0 else None,
            callbacks=callbacks,
        )
        assert len(history.history["val_loss"]) == 3
        said = [r.getMessage() for r in caplog.records if "'val_loss'" in r.getMessage()]
        assert len(said) == (1 if hvd.rank() == 0 else 0)
        assert all(f"by ranks [0] of {hvd.size()}" in text for text in said)
        assert_same_on_all_ranks([history.history["val_loss"], history.history["loss"]])

    @in_both_keras
    def test_a_metric_with_a_state_of_its_own(self, package, caplog):
        """It is averaged, and that is said, unless its state is said to be a sum."""
        metric_average._say_averaged.cache_clear()
        keras = keras_of(package)

        class LargestAndSum(keras.metrics.Metric):
            def __init__(self, largest, **kwargs):
                super().__init__(**kwargs)
                self.largest = largest
                self.state = self.add_weight(name="state", shape=(), initializer="zeros")

            def update_state(self, y_true, y_pred, sample_weight=None):
                y = tf.cast(y_true, tf.float32)
                added = self.state + tf.reduce_sum(y)
                self.state.assign(
                    tf.maximum(self.state, tf.reduce_max(y)) if self.largest else added
                )

            def result(self):
                return self.state + 0.0

        model = make_model(keras)
        metrics = [LargestAndSum(True, name="largest"), LargestAndSum(False, name="sum")]
        model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.0)), "mse", metrics=metrics)
        x, y = data(seed=hvd.rank())
        joins = hvd.MetricAverageCallback(sums=["sum"])
        logs = model.fit(x, y, epochs=2, verbose=0, callbacks=[joins]).history
        of_ranks = [data(seed=rank)[1] for rank in range(hvd.size())]
        np.testing.assert_allclose(logs["sum"], [np.sum(of_ranks)] * 2, rtol=1e-5)
        np.testing.assert_allclose(
            logs["largest"], [np.mean(np.max(of_ranks, (1, 2)))] * 2, rtol=1e-5
        )
        said = [r.getMessage() for r in caplog.records if "weighted by samples" in r.getMessage()]
        assert len(said) == (hvd.rank() == 0)
        assert all("'largest'" in text and "class LargestAndSum" in text for text in said)

    @in_both_keras
    def test_evaluate_returns_what_one_rank_returns(self, package):
        keras = keras_of(package)
        model = make_model(keras)
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.0))
        model.compile(optimizer, "mse", metrics=[keras.metrics.R2Score(name="r2")])
        x, y = data(seed=7, samples=20)
        expected = model.evaluate(x, y, verbose=0, return_dict=True)
        mine = slice(*own_part({2: [0, 15, 20], 4: [0, 10, 15, 18, 20]}))
        # A callback that takes no tensors: tf_keras shows all of them a copy then.
        callbacks = [hvd.MetricAverageCallback(), keras.callbacks.Callback()]
        for _ in range(2):
            found = model.evaluate(
                x[mine], y[mine], batch_size=4, verbose=0, return_dict=True, callbacks=callbacks
            )
            assert found.keys() == expected.keys()
            np.testing.assert_allclose([found[k] for k in expected], list(expected.values()), 1e-5)
        as_list = model.evaluate(x[mine], y[mine], batch_size=4, verbose=0, callbacks=callbacks)
        own = model.evaluate(x[mine], y[mine], batch_size=4, verbose=0)
        joined = model.evaluate(x, y, verbose=0)
        np.testing.assert_allclose(as_list, joined, 1e-5)
        assert hvd.size() == 1 or not np.allclose(own, joined, 1e-5)

    def test_a_rank_without_batches_has_the_others_metrics(self):
        keras = keras_of("keras")

        def compiled():
            model = make_model(keras)
            optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.0))
            model.compile(optimizer, "mse", metrics=[keras.metrics.R2Score(name="r2")])
            return model

        parts = [data(seed=rank) for rank in range(hvd.size() + 1)]
        dataset = tf.data.Dataset.from_tensor_slices(parts[hvd.rank()]).batch(4)
        having = max(hvd.size() - 1, 1)
        dataset = dataset if hvd.rank() < having else dataset.take(0)
        x, y = (np.concatenate(arrays) for arrays in zip(*parts[:having]))
        expected = compiled().evaluate(x, y, verbose=0, return_dict=True)
        joins = hvd.MetricAverageCallback()
        logs = compiled().fit(dataset, verbose=0, callbacks=[joins]).history
        assert logs.keys() == expected.keys()
        for key, value in expected.items():
            np.testing.assert_allclose(logs[key], [value], rtol=1e-5, err_msg=key)

    def test_what_is_no_number_stays(self):
        logs = {"loss": float(hvd.rank()), "note": "text", "list": [1, 2], "bad": float("nan")}
        logs["tensor"] = tf.constant(2.0)
        hvd.callbacks.MetricAverageCallback().on_epoch_end(0, logs)
        assert (logs["note"], logs["list"]) == ("text", [1, 2])
        assert logs["loss"] == (hvd.size() - 1) / 2
        assert np.isnan(logs["bad"])
        assert float(logs["tensor"]) == 2.0


class TestLearningRate:
    def fit(self, keras, callbacks, optimizer=None, epochs=3, momentum=0.0):
        model = make_model(keras)
        optimizer = optimizer or keras.optimizers.SGD(0.5, momentum=momentum)
        model.compile(hvd.DistributedOptimizer(optimizer), keras.losses.MeanSquaredError())
        x, y = data(seed=0)
        watch = Watch(keras)
        model.fit(x, y, batch_size=2, epochs=epochs, verbose=0, callbacks=[*callbacks, watch])
        return watch

    @in_both_keras
    def test_warm_up(self, package, capsys):
        callback = hvd.LearningRateWarmupCallback(0.5, warmup_epochs=2, verbose=1)
        watch = self.fit(keras_of(package), [callback])
        warm = [0.5 / hvd.size() * (1 + (hvd.size() - 1) * step / 8) for step in range(8)]
        np.testing.assert_allclose(watch.rates, [*warm, *[0.5] * 4], rtol=1e-6)
        np.testing.assert_allclose([logs["lr"] for logs in watch.logs], [warm[3], 0.5, 0.5])
        out = capsys.readouterr().out
        assert ("Epoch 2: the warm-up is over, the learning rate is 0.5." in out) == (
            hvd.rank() == 0
        )

    @in_both_keras
    def test_schedules_of_several_epochs(self, package):
        callbacks = [
            hvd.LearningRateScheduleCallback(0.5, 0.1, start_epoch=1, end_epoch=2),
            hvd.LearningRateScheduleCallback(0.5, lambda epoch: epoch / 100, start_epoch=2),
        ]
        watch = self.fit(keras_of(package), callbacks, epochs=4)
        expected = [0.5] * 4 + [0.05] * 4 + [0.01] * 4 + [0.015] * 4
        np.testing.assert_allclose(watch.rates, expected, rtol=1e-6)

    def test_by_batch(self):
        callback = hvd.LearningRateScheduleCallback(0.5, lambda epoch: 1 + epoch, staircase=False)
        watch = self.fit(keras_of("keras"), [callback], epochs=1)
        np.testing.assert_allclose(watch.rates, [0.5, 0.625, 0.75, 0.875])

    @in_both_keras
    @pytest.mark.parametrize("kind", ["new", "legacy"])
    def test_momentum_correction(self, package, kind):
        """What was gathered at another rate is rescaled, as in Goyal et al."""
        keras = keras_of(package)
        if kind == "legacy" and package == "keras":
            pytest.skip("Keras 3 has no legacy optimizers")
        place = keras.optimizers.legacy if kind == "legacy" else keras.optimizers
        optimizer = place.SGD(1.0, momentum=0.5)
        variable = tf.Variable([0.0])
        optimizer.apply_gradients([(tf.constant([1.0]), variable)])  # velocity -1
        learning_rate.put(optimizer, 0.25, momentum_correction=True)  # velocity -0.25
        optimizer.apply_gradients([(tf.constant([1.0]), variable)])
        np.testing.assert_allclose(variable, [-1.0 - 0.5 * 0.25 - 0.25])
        learning_rate.put(optimizer, 1.0, momentum_correction=False)
        optimizer.apply_gradients([(tf.constant([0.0]), variable)])
        np.testing.assert_allclose(variable, [-1.375 - 0.5 * 0.375])

    @in_both_keras
    def test_adam_gathers_no_rate(self, package):
        keras = keras_of(package)
        optimizer = keras.optimizers.Adam(1.0)
        variable = tf.Variable([0.0])
        optimizer.apply_gradients([(tf.constant([1.0]), variable)])
        state = values(optimizer.variables)[2:]
        learning_rate.put(optimizer, 0.25, momentum_correction=True)
        assert_close(values(optimizer.variables)[2:], state)

    @in_both_keras
    def test_a_schedule_cannot_be_set(self, package):
        keras = keras_of(package)
        decay = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)
        callback = hvd.LearningRateWarmupCallback(0.1)
        with pytest.raises(ValueError, match="LearningRateSchedule"):
            self.fit(keras, [callback], optimizer=keras.optimizers.SGD(decay))

    def test_unknown_number_of_batches(self):
        keras = keras_of("keras")
        model = make_model(keras)
        optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))
        model.compile(optimizer, keras.losses.MeanSquaredError())
        x, y = data(seed=0)
        endless = tf.data.Dataset.from_generator(
            lambda: iter([(x, y)] * 4), output_signature=(spec(x), spec(y))
        )
        callback = hvd.LearningRateWarmupCallback(0.1, warmup_epochs=1)
        with pytest.raises(ValueError, match=r"steps_per_epoch=<number>"):
            model.fit(endless, verbose=0, callbacks=[callback])
        callback = hvd.LearningRateWarmupCallback(0.1, warmup_epochs=1, steps_per_epoch=4)
        watch = Watch(keras)
        model.fit(endless, verbose=0, callbacks=[callback, watch])
        np.testing.assert_allclose(watch.rates[0], 0.1 / hvd.size(), rtol=1e-6)


def spec(array):
    return tf.TensorSpec([None, *array.shape[1:]], tf.float32)


class TestBestModelCheckpoint:
    @in_both_keras
    def test_rank_0_saves(self, package, tmp_path):
        keras = keras_of(package)
        model = make_model(keras)
        model.compile(
            hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), keras.losses.MeanSquaredError()
        )
        x, y = data(seed=hvd.rank())
        file = tmp_path / f"{hvd.rank()}.keras"
        best = hvd.BestModelCheckpoint(monitor="loss", filepath=file)
        history = model.fit(
            x, y, epochs=3, verbose=0, callbacks=[hvd.MetricAverageCallback(), best]
        )
        assert file.exists() == (hvd.rank() == 0)
        assert isinstance(best, tf.keras.callbacks.ModelCheckpoint)
        assert (best.monitor, best.save_best_only, best.filepath) == ("loss", True, str(file))
        if hvd.rank() == 0:
            assert best.best == min(history.history["loss"])
            assert_close(keras.models.load_model(file).weights, model.weights)

    @in_both_keras
    def test_what_a_subclass_adds_is_called(self, package, tmp_path):
        keras = keras_of(package)
        if tf.keras.callbacks.ModelCheckpoint is not keras.callbacks.ModelCheckpoint:
            pytest.skip("tf.keras is the other Keras")

        class Counts(hvd.BestModelCheckpoint):
            saved = 0

            def _save_model(self, *args, **kwargs):
                self.saved += 1
                super()._save_model(*args, **kwargs)

        model = make_model(keras)
        model.compile(
            hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), keras.losses.MeanSquaredError()
        )
        x, y = data(seed=0)
        best = Counts("loss", save_weights_only=True)
        best.filepath = tmp_path / "model.weights.h5"
        model.fit(x, y, batch_size=4, epochs=2, verbose=0, callbacks=[best])
        assert best.saved == (2 if hvd.rank() == 0 else 0)
        assert best.filepath == str(tmp_path / "model.weights.h5")
        assert (tmp_path / "model.weights.h5").exists() == (hvd.rank() == 0)
        best.filepath = tmp_path / "model.txt"
        with pytest.raises(ValueError, match=r"\.weights\.h5"):
            model.fit(x, y, verbose=0, callbacks=[best])

    def test_needs_a_path(self):
        keras = keras_of("keras")
        model = make_model(keras)
        model.compile(keras.optimizers.SGD(0.01), keras.losses.MeanSquaredError())
        x, y = data(seed=0)
        with pytest.raises(ValueError, match="filepath=<path>"):
            model.fit(x, y, verbose=0, callbacks=[hvd.BestModelCheckpoint()])


def test_at_the_top_level_and_under_callbacks():
    for name in hvd.callbacks.__all__:
        assert getattr(hvd, name) is getattr(hvd.callbacks, name)
        assert issubclass(getattr(hvd, name), tf.keras.callbacks.Callback)
