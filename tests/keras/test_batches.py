"""hvd.data.Batches: what a step trains on whatever the number of ranks, in `fit` and in a loop."""

import collections
import itertools

import h5py
import numpy as np
import pandas
import pytest
import tensorflow as tf
from flavours import in_both_keras, keras_of, make_model
from variants import also

import tfhvd.keras as hvd
from tfhvd.data.order import Order

Position = hvd.data.Position


class Numbered:
    """What gives a sample for [i], and for nothing else."""

    def __init__(self, length, sample):
        self.length, self.sample = length, sample

    def __len__(self):
        return self.length

    def __getitem__(self, number):
        if not 0 <= number < self.length:
            raise IndexError(number)
        return self.sample(int(number))


class AtOnce(Numbered):
    """What gives several samples at once, too, as datasets of Hugging Face do."""

    def __getitems__(self, numbers):
        return [self.sample(number) for number in numbers]


def samples(length):
    x = np.arange(4 * length, dtype="float32").reshape(length, 4)
    return x, np.arange(length, dtype="float32").reshape(length, 1)


def seen(batches):
    """The numbers of the samples of each step of an epoch, on this rank."""
    return [[int(number) for number in np.ravel(batch[1])] for batch in batches]


def joined(batches):
    """Those of each step on all ranks, the first rank's first."""
    of_ranks = hvd.allgather_object(seen(batches))
    steps = max(map(len, of_ranks))
    return [[n for rank in of_ranks if s < len(rank) for n in rank[s]] for s in range(steps)]


SOURCES = {
    "arrays": lambda folder: samples(23),
    "tensors": lambda folder: tuple(map(tf.constant, samples(23))),
    "pandas": lambda folder: tuple(map(pandas.DataFrame, samples(23))),
    "a memory map": lambda folder: (memory_map(folder), samples(23)[1]),
    "h5py": lambda folder: (h5py.File(write_h5(folder), "r")["x"], samples(23)[1]),
    "samples": lambda folder: Numbered(23, lambda i: (samples(23)[0][i], [float(i)])),
    "several samples at once": lambda folder: AtOnce(23, lambda i: (samples(23)[0][i], [i])),
    "a dataset": lambda folder: tf.data.Dataset.from_tensor_slices(samples(23)),
    "a dataset of unknown length": lambda folder: tf.data.Dataset.from_tensor_slices(
        samples(23)
    ).filter(lambda *_: True),
}


def memory_map(folder):
    path = folder / f"x{hvd.rank()}.npy"
    np.save(path, samples(23)[0])
    return np.load(path, mmap_mode="r")


def write_h5(folder):
    path = folder / f"x{hvd.rank()}.h5"
    with h5py.File(path, "w") as file:
        file["x"] = samples(23)[0]
    return path


@pytest.mark.ranks(1, 2, 3)
class TestSources:
    """Each sample once an epoch; each step the same samples for any number of ranks."""

    @pytest.mark.parametrize(
        "kind", [k if k in ("arrays", "samples", "a dataset") else also(k) for k in SOURCES]
    )
    def test_a_step_has_the_next_places_of_the_order(self, kind, tmp_path):
        batches = hvd.data.Batches(SOURCES[kind](tmp_path), 6)
        if hvd.size() == 1:
            assert len(next(iter(batches.take(1)))[1]) == 6
        expected = [list(range(s, min(s + 6, 23))) for s in range(0, 23, 6)]
        assert joined(batches) == expected == joined(batches)
        for x, y in batches:
            np.testing.assert_array_equal(x, samples(23)[0][np.ravel(y).astype(int)])

    def test_shuffled_it_does_not_depend_on_the_ranks(self):
        batches = hvd.data.Batches(samples(23), 6, shuffle=True, seed=5)
        epochs = [joined(batches), joined(batches)]
        assert epochs[0][0] == SHUFFLED[0] and epochs[1][0] == SHUFFLED[1]
        assert [sorted(itertools.chain(*epoch)) for epoch in epochs] == [list(range(23))] * 2

    def test_structures_and_their_types(self):
        source = Numbered(4, lambda i: {"text": f"word {i}", "n": (i, [0.5, i])})
        [batch, *_] = hvd.data.Batches(source, 4)
        first = batch["text"].numpy()[0].decode()
        assert first == f"word {int(batch['n'][0][0])}"
        assert batch["n"][0].dtype == tf.int32 and batch["n"][1].dtype == tf.float32

    def test_bytes_with_zeros_at_the_end(self):
        source = Numbered(4, lambda i: (bytes([i, 0, 0]), [b"a\0", b"b"]))
        [(alone, listed), *_] = hvd.data.Batches(source, 4)
        assert all(len(text) == 3 for text in alone.numpy())
        assert listed.numpy()[0].tolist() == [b"a\0", b"b"]

    def test_ragged_tensors(self):
        ragged = tf.ragged.constant([[1], [2, 3], [], [4]])
        [batch, *_] = hvd.data.Batches(ragged, 4)
        assert isinstance(batch, tf.RaggedTensor)
        total = hvd.allgather_object([int(v) for v in batch.flat_values])
        assert [*itertools.chain(*total)] == [1, 2, 3, 4]

    def test_without_the_remainder(self):
        batches = hvd.data.Batches(samples(23), 6, drop_remainder=True)
        assert len(batches) == 3 and joined(batches)[-1] == list(range(12, 18))

    def test_fewer_samples_than_ranks_have_places(self):
        assert joined(hvd.data.Batches(samples(1), 6)) == [[0]]

    def test_maps_prefetches_and_options_keep_the_position(self):
        options = tf.data.Options()
        batches = hvd.data.Batches(samples(12), 6).map(lambda x, y: (x, y + 1), 2)
        batches = batches.prefetch(2).with_options(options)
        assert len(batches) == 2 and joined(batches)[0] == [1, 2, 3, 4, 5, 6]
        assert batches.position == Position(1, 0)


SHUFFLED = [[4, 19, 6, 18, 12, 11], [16, 8, 15, 4, 21, 14]]  # the first step of two epochs


@pytest.mark.ranks(1, 2)
class TestPosition:
    """How far a training has come, and where it goes on."""

    def test_a_loop_counts_what_it_hands_out(self):
        batches = hvd.data.Batches(samples(24), 6, shuffle=True).prefetch(2)
        assert batches.position == Position(0, 0)
        for number, _ in enumerate(batches, 1):
            assert batches.position == Position(0, number)
        assert batches.position == Position(1, 0)

    def test_a_loop_goes_on_where_the_last_one_ended(self):
        whole = hvd.data.Batches(samples(24), 6, shuffle=True)
        epoch = seen(whole)
        batches = hvd.data.Batches(samples(24), 6, shuffle=True)
        begun = []
        for batch in batches:
            begun.append([int(number) for number in np.ravel(batch[1])])
            if len(begun) == 2:
                break
        assert begun + seen(batches) == epoch and batches.position == Position(1, 0)

    def test_a_position_that_was_kept(self):
        batches = hvd.data.Batches(samples(24), 6, shuffle=True).prefetch(3)
        epochs = [seen(batches) for _ in range(3)]
        other = hvd.data.Batches(samples(24), 6, shuffle=True).prefetch(3)
        other.position = Position(2, 3)
        assert seen(other) == epochs[2][3:]
        other.position = Position(1, 4)
        assert seen(other) == [] and other.position == Position(2, 0)

    def test_of_a_dataset_by_skipping(self):
        batches = hvd.data.Batches(SOURCES["a dataset of unknown length"](None), 6)
        batches.position = Position(0, 2)
        assert joined(batches) == [list(range(12, 18)), list(range(18, 23))]

    def test_looking_at_a_batch_in_a_dataset_of_its_own_counts_nothing(self):
        batches = hvd.data.Batches(samples(24), 6)
        assert len(list(batches.take(1))) == 1 and batches.position == Position(0, 0)

    @in_both_keras
    @pytest.mark.parametrize("eager", [False, also(True)])
    def test_fit_tells_its_own(self, package, eager):
        keras = keras_of(package)
        model = make_model(keras)
        model.compile(
            hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), "mse", run_eagerly=eager
        )
        batches = hvd.data.Batches(samples(24), 6, shuffle=True).prefetch(2)
        positions = []
        tell = keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs: positions.append(batches.position),
            on_epoch_end=lambda epoch, logs: positions.append(batches.position),
        )
        model.fit(batches, epochs=2, verbose=0, callbacks=[tell], validation_data=batches)
        of_epoch = [(0, 1), (0, 2), (0, 3), (0, 4), (1, 0)]
        expected = [Position(e + epoch, s) for epoch in range(2) for e, s in of_epoch]
        assert positions == expected
        positions.clear()
        model.fit(batches, epochs=1, verbose=0, callbacks=[tell])
        assert positions[-1] == Position(3, 0)

    @in_both_keras
    def test_fit_trains_on_the_same_whatever_the_number_of_ranks(self, package, caplog):
        """And goes on in the middle of an epoch."""
        keras = keras_of(package)
        x, y = samples(23)[0] / 100, samples(23)[1]
        model, alone = make_model(keras), make_model(keras)
        model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.001)), "mse")
        alone.compile(keras.optimizers.SGD(0.001), "mse")
        batches = hvd.data.Batches((x, y), 6, shuffle=True)
        model.fit(batches, epochs=2, verbose=0)
        batches.position = Position(2, 2)
        model.fit(batches, epochs=4, initial_epoch=2, verbose=0)
        assert batches.position == Position(4, 0)
        assert "interrupted" not in caplog.text
        for epoch, first in [(0, 0), (1, 0), (2, 2), (3, 0)]:
            numbers = Order(23, True, 0).samples(epoch, np.arange(23))
            for step in range(first, 4):
                rows = numbers[6 * step : 6 * step + 6]
                alone.train_on_batch(x[rows], y[rows])
        for ours, theirs in zip(model.trainable_variables, alone.trainable_variables):
            np.testing.assert_allclose(np.array(ours), np.array(theirs), rtol=2e-5, atol=1e-6)

    @in_both_keras
    def test_steps_per_epoch(self, package):
        keras = keras_of(package)
        model = make_model(keras)
        model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), "mse")
        batches = hvd.data.Batches(samples(24), 6, shuffle=True)
        steps = []
        count = keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs: steps.append(batch)
        )
        model.fit(batches, epochs=2, steps_per_epoch=3, verbose=0, callbacks=[count])
        assert batches.position == Position(*divmod(len(steps), 4))


@pytest.mark.ranks(1, 2)
class TestMistakes:
    """What is refused, and in which words."""

    def test_shuffling_a_dataset(self):
        with pytest.raises(ValueError, match=r"dataset.shuffle\(10_000, seed=4\)"):
            hvd.data.Batches(tf.data.Dataset.range(3), 2, shuffle=True, seed=3)

    def test_fewer_samples_in_a_batch_than_ranks(self):
        with pytest.raises(ValueError, match=f"Expected: {hvd.size()} or above"):
            hvd.data.Batches(samples(9), hvd.size() - 1)

    def test_a_source_without_numbered_samples(self):
        with pytest.raises(TypeError, match=r"Expected: a tf\.data\.Dataset, a list, or arrays"):
            hvd.data.Batches(iter([1, 2]), 2)

    def test_a_negative_seed_or_position(self):
        with pytest.raises(ValueError, match="seed=-1"):
            hvd.data.Batches(samples(9), 3, seed=-1)
        with pytest.raises(ValueError, match="step=-1"):
            Position(0, -1)

    def test_samples_of_other_shapes(self):
        source = Numbered(4, lambda i: np.zeros(i + 1))
        with pytest.raises(tf.errors.OpError, match=r"\([14],\) of sample [03]"):
            list(hvd.data.Batches(source, 4))

    @pytest.mark.parametrize("value", [2**40, 0.5])
    def test_a_value_that_the_type_of_the_first_cannot_hold(self, value):
        source = Numbered(2 * hvd.size(), lambda i: value if i == hvd.rank() * 2 + 1 else 0)
        with pytest.raises(tf.errors.OpError, match="int32, and values in samples"):
            list(hvd.data.Batches(source, 2 * hvd.size(), compare=False))

    def test_a_cache_of_shuffled_batches(self):
        with pytest.raises(ValueError, match="repeat the order of the first epoch"):
            hvd.data.Batches(samples(9), 3, shuffle=True).cache()
        assert len(list(hvd.data.Batches(samples(9), 3).cache())) == 3

    def test_dividing_them_again(self):
        with pytest.raises(TypeError, match="divided among the ranks already"):
            hvd.shard(hvd.data.Batches(samples(9), 3))


@pytest.mark.ranks(2)
def test_ranks_with_other_arguments_are_told_so():
    with pytest.raises(ValueError, match=r"hvd.data.Batches divides .* global_batch=\[4, 5\]"):
        hvd.data.Batches(samples(9), 4 + hvd.rank())
    with pytest.raises(ValueError, match=r"length=\[9, 10\]"):
        hvd.data.Batches(samples(9 + hvd.rank()), 4)


@pytest.mark.ranks(2)
def test_ranks_with_other_samples_are_warned(caplog):
    x, y = samples(32)
    order = np.random.default_rng(hvd.rank()).permutation(32)
    hvd.data.Batches((x[order], y), 4)
    said = (
        "hvd.data.Batches: the data, or their order, are not the same on all ranks" in caplog.text
    )
    assert said == (hvd.rank() == 0)
    assert collections.Counter(r.levelname for r in caplog.records)["ERROR"] == 0
