"""`fit` on ranks with unequal data, and on ranks of which one stops.

The reference is plain Keras on every rank, beside the distributed training: it sees in each step
the samples that all ranks see together.
"""

import collections
import json
import types

import numpy as np
import pytest
import tensorflow as tf
from flavours import (
    MODES,
    assert_same_on_all_ranks,
    data,
    in_both_keras,
    keras_of,
    make_model,
    mean_square,
    set_seed,
    values,
)
from variants import also, first_of

import tfhvd
import tfhvd.keras as hvd

pytestmark = pytest.mark.ranks(2)

BATCH = 4


def batches_of(samples):
    """Each rank's batches, from how many samples it has."""
    found = []
    for rank, count in enumerate(samples):
        x, y = data(seed=100 + rank, samples=count)
        found.append([(x[i : i + BATCH], y[i : i + BATCH]) for i in range(0, count, BATCH)])
    return found


def joined_steps(of_ranks):
    """What one rank sees: in each step the samples of those that have a batch left."""
    for step in range(max(map(len, of_ranks))):
        there = [batches[step] for batches in of_ranks if step < len(batches)]
        yield tuple(np.concatenate(part) for part in zip(*there))


def make_optimizer(keras, kind):
    return (
        keras.optimizers.SGD(0.05, momentum=0.9) if kind == "sgd" else keras.optimizers.Adam(0.01)
    )


def one_rank(keras, kind, of_ranks, epochs, model=None, scale=1.0):
    model, optimizer = model or make_model(keras), make_optimizer(keras, kind)
    for _ in range(epochs):
        for x, y in joined_steps(of_ranks):
            with tf.GradientTape() as tape:
                loss = mean_square(y, model(x, training=True)) * scale
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return model, optimizer


def dataset(batches):
    """A data set that does not say how many batches it has."""
    spec = (tf.TensorSpec([None, 4], tf.float32), tf.TensorSpec([None, 1], tf.float32))
    return tf.data.Dataset.from_generator(lambda: iter(batches), output_signature=spec)


def arrays(batches):
    return tuple(np.concatenate(part) for part in zip(*batches))


def compiled(keras, kind="sgd", mode="graph", **arguments):
    model = make_model(keras, seed=hvd.rank())
    optimizer = hvd.DistributedOptimizer(make_optimizer(keras, kind), **arguments)
    model.compile(optimizer, keras.losses.MeanSquaredError(), **MODES[mode])
    return model


def fit(model, source, callbacks=(), **arguments):
    given = {"x": source[0], "y": source[1]} if isinstance(source, tuple) else {"x": source}
    if isinstance(source, tuple):
        given["batch_size"] = BATCH
    return model.fit(
        **given,
        shuffle=False,
        verbose=0,
        callbacks=[hvd.BroadcastGlobalVariablesCallback(0), *callbacks],
        **arguments,
    )


def assert_is_one_rank(model, reference, optimizer, tolerance=1e-5, counts=True):
    assert_same_on_all_ranks([*model.weights, *optimizer_state(model.optimizer)])
    # Keras counts one more with each end of data that it did not foresee.
    assert not counts or int(model.optimizer.iterations) == int(optimizer.iterations)
    expected = values(reference.trainable_variables)
    largest = max(np.abs(weight).max() for weight in expected)
    for actual, weight in zip(values(model.trainable_variables), expected):
        assert np.abs(actual - weight).max() <= tolerance * largest


def optimizer_state(optimizer):
    variables = optimizer.variables
    return list(variables() if callable(variables) else variables)


def of_ranks(*samples):
    """Samples by rank, for as many ranks as there are."""
    return [samples[rank % len(samples)] for rank in range(hvd.size())]


@pytest.mark.parametrize(
    ("package", "mode"),
    [("keras", "graph"), also("keras", "compiled"), also("tf_keras", "graph")],
)
def test_ten_batches_and_seven(package, mode):
    train_on_ten_and_seven(package, mode)


@pytest.mark.ranks(1, 4)
def test_on_one_rank_and_on_four():
    train_on_ten_and_seven("keras", "graph")


def train_on_ten_and_seven(package, mode):
    keras = keras_of(package)
    batches = batches_of(of_ranks(10 * BATCH, 7 * BATCH))
    model = compiled(keras, "adam", mode)
    fit(model, arrays(batches[hvd.rank()]), epochs=3)
    assert_is_one_rank(model, *one_rank(keras, "adam", batches, epochs=3))


class TestWeights:
    @in_both_keras
    @pytest.mark.parametrize("mode", ["graph", also("eager"), also("compiled")])
    def test_last_batches_of_unequal_size(self, package, mode):
        keras, kind = keras_of(package), "sgd"
        batches = batches_of(of_ranks(3 * BATCH + 1, 2 * BATCH + 3))
        model = compiled(keras, kind, mode)
        fit(model, arrays(batches[hvd.rank()]), epochs=2)
        assert_is_one_rank(model, *one_rank(keras, kind, batches, epochs=2))

    def test_data_sets_that_do_not_know_their_length(self):
        keras = keras_of("keras")
        batches = batches_of(of_ranks(2 * BATCH + 2, 5 * BATCH))
        model = compiled(keras)
        fit(model, dataset(batches[hvd.rank()]), epochs=3)
        assert_is_one_rank(model, *one_rank(keras, "sgd", batches, epochs=3), counts=False)

    @pytest.mark.parametrize("op", first_of([hvd.Average, hvd.Max, hvd.Adasum]), ids=str)
    def test_a_rank_without_data(self, op):
        keras = keras_of("keras")
        batches = batches_of(of_ranks(3 * BATCH, 0))
        model = compiled(keras, op=op)
        fit(model, dataset(batches[hvd.rank()]), epochs=2)
        assert_is_one_rank(model, *one_rank(keras, "sgd", batches, epochs=2), counts=False)

    def test_sum_is_not_weighted(self):
        keras = keras_of("keras")
        x, y = data(seed=hvd.rank(), samples=BATCH - hvd.rank())
        model, plain = compiled(keras, op=hvd.Sum), make_model(keras, seed=0)
        with tf.GradientTape() as tape:
            loss = mean_square(y, plain(x, training=True))
        gradients = tape.gradient(loss, plain.trainable_variables)
        expected = [
            weight - 0.05 * tfhvd.allreduce(gradient, op=hvd.Sum).numpy()
            for weight, gradient in zip(values(plain.trainable_variables), gradients)
        ]
        fit(model, (x, y))
        for actual, weight in zip(values(model.trainable_variables), expected):
            np.testing.assert_allclose(actual, weight, rtol=1e-4, atol=1e-6)

    @pytest.mark.parametrize(
        "arguments",
        [
            {},
            {"sparse_as_dense": True},
            {"compression": hvd.Compression.fp16},
        ],
        ids=["rows", "dense", "fp16"],
    )
    def test_sparse_gradients(self, arguments):
        keras = keras_of("keras")
        random = np.random.default_rng(7)
        samples = of_ranks(3 * BATCH + 1, BATCH + 2)
        x = [random.integers(0, 9, size=(n, 2)) for n in samples]
        y = [random.normal(size=(n, 1)).astype("float32") for n in samples]

        def make():
            keras.utils.set_random_seed(3)
            layers = keras.layers
            table = layers.Embedding(9, 3)
            return keras.Sequential([keras.Input((2,)), table, layers.Flatten(), layers.Dense(1)])

        model = make()
        model.compile(
            hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), **arguments),
            keras.losses.MeanSquaredError(),
            jit_compile=False,
        )
        own = hvd.rank()
        model.fit(x[own], y[own], batch_size=BATCH, shuffle=False, verbose=0, epochs=3)
        reference, optimizer = make(), keras.optimizers.SGD(0.1)
        parts = [
            [(a[i : i + BATCH], b[i : i + BATCH]) for i in range(0, len(a), BATCH)]
            for a, b in zip(x, y)
        ]
        for _ in range(3):
            for inputs, targets in joined_steps(parts):
                with tf.GradientTape() as tape:
                    loss = mean_square(targets, reference(inputs))
                gradients = tape.gradient(loss, reference.trainable_variables)
                optimizer.apply_gradients(zip(gradients, reference.trainable_variables))
        assert_is_one_rank(model, reference, optimizer, 1e-5 if len(arguments) < 1 else 2e-3)

    @pytest.mark.parametrize(
        ("package", "mode"),
        [("keras", "graph"), also("keras", "compiled"), also("tf_keras", "graph")],
    )
    def test_synchronized_batch_normalization(self, package, mode):
        """Its moving averages too are those of one rank."""
        keras = keras_of(package)
        batches = batches_of(of_ranks(3 * BATCH + 2, BATCH + 3))

        def make(seed, **arguments):
            set_seed(keras, seed)
            layers = keras.layers
            normalization = layers.BatchNormalization(momentum=0.8, **arguments)
            return keras.Sequential([layers.Input((4,)), normalization, layers.Dense(1)])

        model, plain = make(hvd.rank(), synchronized=True), make(0)
        optimizer = hvd.DistributedOptimizer(make_optimizer(keras, "sgd"))
        model.compile(optimizer, "mse", **MODES[mode])
        fit(model, arrays(batches[hvd.rank()]), epochs=2)
        reference, optimizer = one_rank(keras, "sgd", batches, epochs=2, model=plain)
        assert_is_one_rank(model, reference, optimizer)
        for actual, expected in zip(values(model.weights), values(reference.weights)):
            np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)

    @pytest.mark.parametrize(
        ("kind", "mode"), [("topk", "graph"), also("topk", "compiled"), ("loss_scale", "graph")]
    )
    def test_by_way_of(self, kind, mode):
        """What gathers, and what asks all ranks before it updates."""
        keras = keras_of("keras")
        batches = batches_of(of_ranks(3 * BATCH + 1, BATCH + 2))
        model, optimizer = make_model(keras, seed=hvd.rank()), make_optimizer(keras, "sgd")
        arguments = {}
        if kind == "topk":
            arguments["compression"] = hvd.Compression.topk(ratio=1.0, least=1)
        else:
            optimizer = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=8.0)
        model.compile(hvd.DistributedOptimizer(optimizer, **arguments), "mse", **MODES[mode])
        fit(model, arrays(batches[hvd.rank()]), epochs=2)
        assert_is_one_rank(model, *one_rank(keras, "sgd", batches, epochs=2), counts=False)

    def test_metrics_count_every_sample(self):
        keras = keras_of("keras")
        batches = batches_of(of_ranks(2 * BATCH + 1, 1))
        model = compiled(keras)
        model.optimizer.learning_rate = 0.0
        history = fit(
            model, arrays(batches[hvd.rank()]), callbacks=[hvd.callbacks.MetricAverageCallback()]
        )
        x, y = arrays([batch for part in batches for batch in part])
        expected = float(mean_square(y, make_model(keras, seed=0)(x)))
        assert history.history["loss"][0] == pytest.approx(expected, rel=1e-5)
        own = model.evaluate(x[hvd.rank() :], y[hvd.rank() :], verbose=0)
        assert np.isfinite(own)
        assert model.predict(x[: 3 * hvd.rank() + 1], verbose=0).shape == (3 * hvd.rank() + 1, 1)

    def test_accumulation_goes_on_with_whole_updates(self):
        keras = keras_of("tf_keras")
        batches = batches_of(of_ranks(7 * BATCH, 4 * BATCH))
        model = compiled(keras, backward_passes_per_step=2)
        fit(model, arrays(batches[hvd.rank()]), epochs=2)
        assert_same_on_all_ranks([*model.weights, *optimizer_state(model.optimizer)])
        assert int(model.optimizer.iterations) == 6

    @in_both_keras
    @pytest.mark.parametrize("average", [False, True])
    def test_every_sample_of_an_update_counts_once(self, package, average):
        """Of several passes, and ranks: as in one batch of them all."""
        keras, passes = keras_of(package), 2
        sizes = of_ranks([4, 2, 3, 4], [1, 4, 2, 2])
        x, y = zip(*(data(seed=100 + r, samples=sum(of)) for r, of in enumerate(sizes)))
        cuts = [np.cumsum(of)[:-1] for of in sizes]
        batches = [list(zip(np.split(a, cut), np.split(b, cut))) for a, b, cut in zip(x, y, cuts)]
        model = compiled(
            keras, backward_passes_per_step=passes, average_aggregated_gradients=average
        )
        # Of a known length: Keras counts one step more with each end of data not foreseen.
        known = tf.data.experimental.assert_cardinality(2 * passes)
        fit(model, dataset(batches[hvd.rank()]).apply(known), epochs=2)
        together = [
            [tuple(map(np.concatenate, zip(*of[i : i + passes]))) for i in (0, passes)]
            for of in batches
        ]
        scale = 1.0 if average else passes
        reference, _ = one_rank(keras, "sgd", together, epochs=2, scale=scale)
        assert_same_on_all_ranks([*model.weights, *optimizer_state(model.optimizer)])
        for actual, expected in zip(values(model.weights), values(reference.weights)):
            np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)

    def test_learning_rates_are_those_of_the_longest_epoch(self):
        keras = keras_of("keras")
        batches = batches_of(of_ranks(5 * BATCH, 2 * BATCH))
        model = compiled(keras)
        seen = []
        note = keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs: seen.append(float(model.optimizer.learning_rate))
        )
        ramp = hvd.callbacks.LearningRateScheduleCallback(
            1.0, lambda epoch: 0.01 + 0.1 * epoch, staircase=False
        )
        fit(model, arrays(batches[hvd.rank()]), callbacks=[ramp, note])
        np.testing.assert_allclose(seen, 0.01 + 0.02 * np.arange(len(seen)), rtol=1e-5)


def stop_at(keras, rank, epoch=None, batch=None):
    """Makes a callback that stops one rank."""

    class Stops(keras.callbacks.Callback):
        batches = 0

        def on_train_batch_end(self, number, logs=None):
            self.batches += 1
            if rank == hvd.rank() and self.batches == batch:
                self.model.stop_training = True

        def on_epoch_end(self, number, logs=None):
            if rank == hvd.rank() and number == epoch:
                self.model.stop_training = True

    return Stops()


class TestStopping:
    @in_both_keras
    @pytest.mark.parametrize("rank", [0, 1])
    def test_after_an_epoch(self, package, rank):
        keras = keras_of(package)
        batches = batches_of(of_ranks(3 * BATCH, 2 * BATCH))
        model = compiled(keras)
        stops = stop_at(keras, rank, epoch=1)
        history = fit(model, arrays(batches[hvd.rank()]), [stops], epochs=9)
        assert history.epoch == [0, 1]
        assert_is_one_rank(model, *one_rank(keras, "sgd", batches, epochs=2))

    @in_both_keras
    @pytest.mark.parametrize("form", ["alone", "container"])
    def test_callbacks_in_another_form_than_a_list(self, package, form):
        keras = keras_of(package)
        x, y = data(seed=0, samples=(2 + hvd.rank()) * BATCH)
        model = compiled(keras)
        callbacks = stop_at(keras, 0, epoch=1)
        if form == "container":
            callbacks = keras.callbacks.CallbackList(
                [callbacks], add_history=True, model=model, epochs=9, steps=None
            )
        model.fit(x, y, batch_size=BATCH, verbose=0, epochs=9, callbacks=callbacks)
        assert int(model.optimizer.iterations) == 2 * (1 + hvd.size())

    @in_both_keras
    @pytest.mark.parametrize("mode", ["graph", also("compiled")])
    def test_in_an_epoch(self, package, mode):
        """The others finish the step that they are in, and all end with their state."""
        keras, steps = keras_of(package), 40
        batches = batches_of(of_ranks(steps * BATCH))
        model = compiled(keras, mode=mode)
        stops = stop_at(keras, 1, batch=12)
        history = fit(model, arrays(batches[hvd.rank()]), [stops], epochs=9)
        assert history.epoch == [0]
        assert stops.batches == (12 if hvd.rank() == 1 else 13)
        assert int(model.optimizer.iterations) == 13
        assert_same_on_all_ranks([*model.weights, *optimizer_state(model.optimizer)])

    @in_both_keras
    def test_early_stopping_on_one_rank_alone(self, package):
        """And it puts back its best weights: all ranks have them."""
        keras = keras_of(package)
        x, y = data(seed=hvd.rank(), samples=3 * BATCH)
        model = compiled(keras)
        callbacks, best = [], []
        if hvd.rank() == 0:
            stop = keras.callbacks.EarlyStopping(
                "val_loss", mode="max", patience=1, restore_best_weights=True
            )
            note = keras.callbacks.LambdaCallback(
                on_epoch_end=lambda epoch, logs: best.append(
                    (logs["val_loss"], model.get_weights())
                )
            )
            callbacks = [note, stop]
        validation = {"validation_data": (x, y)} if hvd.rank() == 0 else {}
        history = fit(model, (x, y), callbacks, epochs=9, **validation)
        assert hvd.broadcast_object(history.epoch, 0) == history.epoch
        assert len(history.epoch) < 9
        assert_same_on_all_ranks(model.weights)
        if hvd.rank() == 0:
            _, weights = max(best, key=lambda entry: entry[0])
            for actual, expected in zip(model.get_weights(), weights):
                np.testing.assert_array_equal(actual, expected)

    @in_both_keras
    def test_nan_on_one_rank(self, package):
        keras = keras_of(package)
        x, y = data(seed=hvd.rank(), samples=20 * BATCH)
        if hvd.rank() == 1:
            y[5 * BATCH] = np.nan
        callbacks = [keras.callbacks.TerminateOnNaN()] if hvd.rank() == 1 else []
        model = compiled(keras)
        history = fit(model, (x, y), callbacks, epochs=3)
        assert history.epoch == [0]
        assert int(model.optimizer.iterations) == 7

    def test_fewer_epochs_on_one_rank(self):
        keras = keras_of("keras")
        batches = batches_of(of_ranks(2 * BATCH))
        model = compiled(keras)
        history = fit(model, arrays(batches[hvd.rank()]), epochs=2 + 3 * hvd.rank())
        assert history.epoch == [0, 1]
        assert_is_one_rank(model, *one_rank(keras, "sgd", batches, epochs=2))

    def test_data_that_is_used_up(self):
        """tf_keras ends `fit` without a word to callbacks where steps_per_epoch asks for more."""
        keras = keras_of("tf_keras")
        batches = batches_of(of_ranks(4 * BATCH, 2 * BATCH))
        callbacks = [hvd.callbacks.MetricAverageCallback()]
        model = compiled(keras)
        fit(model, dataset(batches[hvd.rank()]), callbacks, steps_per_epoch=2, epochs=4)
        assert_same_on_all_ranks([*model.weights, *optimizer_state(model.optimizer)])
        assert int(model.optimizer.iterations) <= 5


class TestTapesInATrainStep:
    """Of a plain optimizer, and a model whose own train_step reduces."""

    @in_both_keras
    @pytest.mark.parametrize("mode", ["graph", also("eager")])
    def test_unequal_data_and_a_rank_that_stops(self, package, mode):
        keras = keras_of(package)

        class Taped(keras.Model):
            def train_step(self, batch):
                x, y = batch[0], batch[1]
                with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
                    loss = mean_square(y, self(x, training=True))
                gradients = tape.gradient(loss, self.trainable_variables)
                self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
                return {"loss": loss}

        plain = make_model(keras, seed=hvd.rank())
        model = Taped(plain.inputs, plain.outputs)
        model.compile(make_optimizer(keras, "sgd"), **MODES[mode])
        batches = batches_of(of_ranks(4 * BATCH + 1, 2 * BATCH + 3))
        mine = arrays(batches[hvd.rank()])
        history = fit(model, mine, [stop_at(keras, 1, epoch=1)], epochs=9)
        assert history.epoch == [0, 1]
        assert_is_one_rank(model, *one_rank(keras, "sgd", batches, epochs=2))
        model.fit(*mine, batch_size=BATCH, shuffle=False, verbose=0)  # with the function it has
        assert_is_one_rank(model, *one_rank(keras, "sgd", batches, epochs=3))

    def test_a_train_step_that_reduces_nothing(self):
        keras = keras_of("keras")

        class Own(keras.Model):
            def train_step(self, batch):
                self.optimizer.iterations.assign_add(1)
                return {"loss": tf.reduce_mean(self(batch[0]))}

        plain = make_model(keras)
        model = Own(plain.inputs, plain.outputs)
        model.compile(make_optimizer(keras, "sgd"))
        model.fit(*data(seed=0, samples=(1 + hvd.rank()) * BATCH), batch_size=BATCH, verbose=0)
        assert int(model.optimizer.iterations) == 1 + hvd.rank()


def how_often(timeline):
    """How often each collective of a recording was negotiated, by its name."""
    events = json.loads(timeline.read_text(encoding="utf-8"))
    names = {event["pid"]: event["args"]["name"] for event in events if event["ph"] == "M"}
    begun = [e["pid"] for e in events if e["ph"] == "B" and e["name"].startswith("NEGOTIATE_")]
    return collections.Counter(names[row] for row in begun)


def test_a_step_has_no_collective_but_its_gradients(tmp_path):
    """Which make one bucket. With unequal data, weights, averaged metrics and a rank that stops."""
    keras, steps = keras_of("keras"), 12
    batches = batches_of(of_ranks(steps * BATCH + 1, (steps - 2) * BATCH))
    model = compiled(keras)
    path = tmp_path / "timeline.json"
    tfhvd.start_timeline(path)
    tfhvd.barrier()
    callbacks = [hvd.callbacks.MetricAverageCallback(), stop_at(keras, 1, epoch=1)]
    fit(model, arrays(batches[hvd.rank()]), callbacks, epochs=9)
    tfhvd.stop_timeline()
    if hvd.rank() == 0:
        counts = how_often(path)
        of_steps = [n for n in counts.values() if n >= steps // 2]
        assert of_steps == [2 * (steps + 1)], counts
        assert counts["MetricAverageCallback"] == 2  # one an epoch


class TestRankZeroAlone:
    @in_both_keras
    def test_validates_and_saves(self, package, tmp_path):
        keras = keras_of(package)
        batches = batches_of(of_ranks(2 * BATCH, 4 * BATCH))
        x, y = arrays(batches[0])
        model = compiled(keras)
        path = str(tmp_path / "best.keras")
        seen = []
        note = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.append(logs))
        callbacks = [hvd.callbacks.MetricAverageCallback(), note]
        validation = {}
        if hvd.rank() == 0:
            callbacks.append(keras.callbacks.ModelCheckpoint(path))
            validation = {"validation_data": (x, y)}
        fit(model, arrays(batches[hvd.rank()]), callbacks, epochs=2, **validation)
        reference, optimizer = one_rank(keras, "sgd", batches, epochs=2)
        assert_is_one_rank(model, reference, optimizer)
        # It validated what all ranks had trained, with the batches that it had not itself.
        assert seen[-1]["val_loss"] == pytest.approx(float(mean_square(y, reference(x))), rel=1e-4)
        if hvd.rank() == 0:
            saved = hvd.load_model(path)
            for actual, expected in zip(saved.get_weights(), model.get_weights()):
                np.testing.assert_array_equal(actual, expected)


class TestWhatItLeavesAlone:
    def test_a_plain_model_on_one_rank(self):
        keras = keras_of("keras")
        if hvd.rank() == 0:
            model = make_model(keras)
            model.compile(keras.optimizers.SGD(0.1), "mse")
            model.fit(*data(seed=0), verbose=0)

    @in_both_keras
    def test_the_model_is_as_before(self, package):
        model = compiled(keras_of(package))
        fit(model, data(seed=hvd.rank()))
        assert isinstance(model.train_step, types.MethodType)
        function = model.train_function
        fit(model, data(seed=hvd.rank()))
        assert model.train_function is function

    @pytest.mark.ranks(4)
    def test_ranks_of_another_process_set(self):
        """Two sets train models of their own, each with its own number of batches."""
        keras = keras_of("keras")
        sets = [tfhvd.add_process_set(ranks) for ranks in ([0, 2], [1, 3])]
        mine = sets[hvd.rank() % 2]
        samples = [(3 + hvd.rank() % 2) * BATCH, BATCH]
        batches = batches_of(samples)
        model = make_model(keras)
        model.compile(
            hvd.DistributedOptimizer(make_optimizer(keras, "sgd"), process_set=mine),
            keras.losses.MeanSquaredError(),
            jit_compile=False,
        )
        model.fit(
            *arrays(batches[mine.rank()]), batch_size=BATCH, shuffle=False, verbose=0, epochs=2
        )
        reference, _ = one_rank(keras, "sgd", batches, epochs=2)
        for actual, expected in zip(values(model.weights), values(reference.weights)):
            np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-6)
        for process_set in sets:
            tfhvd.remove_process_set(process_set)
