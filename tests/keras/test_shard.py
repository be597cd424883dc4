"""hvd.shard: every element on one rank, once an epoch; and what it warns of."""

import collections
import gc
from pathlib import Path

import h5py
import numpy as np
import pandas
import pytest
import scipy.sparse
import tensorflow as tf
from flavours import data, in_both_keras, keras_of, make_model
from tensorflow.python.eager import context
from variants import also

import tfhvd
import tfhvd.keras as hvd
from tfhvd.data import arrays, datasets
from tfhvd.data.partition import Division

SIZES = (1, 2, 3, 5)
LENGTHS = (0, 1, 2, 7, 12)


def divisions(size, uneven="keep", shuffle=False, seed=0):
    return [Division(rank, size, shuffle, seed, uneven) for rank in range(size)]


def assert_covers(parts, length, uneven):
    """The parts have each element once, but for those that make them equal."""
    size, seen = len(parts), [int(element) for part in parts for element in part]
    rest = length % size
    if uneven == "keep":
        assert sorted(seen) == list(range(length))
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
        return
    assert len(set(map(len, parts))) == 1
    if uneven == "drop":
        assert len(seen) == length - rest
        assert len(set(seen)) == len(seen) and set(seen) <= set(range(length))
    else:
        assert len(seen) == length + (size - rest if rest else 0)
        assert set(seen) == set(range(length))


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("uneven", ["keep", "drop", "pad"])
class TestCover:
    """What the parts of all ranks are together."""

    def test_of_an_array(self, uneven, shuffle):
        for length in LENGTHS:
            for size in SIZES:
                parts = [
                    np.arange(length)[division.positions(length, epoch=3)]
                    for division in divisions(size, uneven, shuffle)
                ]
                assert_covers(parts, length, uneven)

    @pytest.mark.parametrize("known", [True, also(False)])
    def test_of_a_dataset(self, uneven, shuffle, known):
        for length, size in [(0, 2), (1, 3), (7, 3), (12, 3)]:
            dataset = tf.data.Dataset.range(length)
            if not known:
                dataset = dataset.filter(lambda _: True)
            of_ranks = [
                datasets.divided(dataset, division, 0, None if known else 5)
                for division in divisions(size, uneven, shuffle)
            ]
            for _ in range(2):
                assert_covers([list(d.as_numpy_iterator()) for d in of_ranks], length, uneven)
            if known:
                counts = [sum(1 for _ in part) for part in of_ranks]
                assert [int(part.cardinality()) for part in of_ranks] == counts


class TestOrder:
    def test_of_arrays_is_that_of_seed_and_epoch(self):
        [division] = divisions(1, shuffle=True, seed=7)
        orders = [tuple(division.positions(50, epoch)) for epoch in (0, 1, 1)]
        [other] = divisions(1, shuffle=True, seed=2**40 + 7)
        assert orders[0] != orders[1] == orders[2] != tuple(other.positions(50, 1))

    def test_of_datasets_is_that_of_seed_and_epoch(self):
        """Whatever seed a rank's TensorFlow has, and whatever is left of the dataset's makers."""

        def orders(seed, epoch, global_seed):
            tf.random.set_seed(global_seed)
            source = tf.data.Dataset.range(50)
            [division] = divisions(1, shuffle=True, seed=seed)
            dataset = datasets.divided(source, division, epoch, None)
            del source
            gc.collect()
            return [tuple(dataset.as_numpy_iterator()) for _ in range(3)]

        first = orders(seed=7, epoch=0, global_seed=0)
        assert len(set(first)) == 3
        assert orders(seed=7, epoch=0, global_seed=5) == first
        assert orders(seed=7, epoch=1, global_seed=1)[:2] == first[1:]
        assert not set(orders(seed=8, epoch=0, global_seed=0)) & set(first)
        assert len(set(orders(seed=2**31 - 2, epoch=0, global_seed=0))) == 3

    def test_epoch_in_a_variable(self):
        epoch = tf.Variable(0, dtype=tf.int64)
        [division] = divisions(1, shuffle=True)
        dataset = datasets.divided(tf.data.Dataset.range(50), division, epoch, None)
        orders = [tuple(dataset.as_numpy_iterator()) for _ in range(2)]
        epoch.assign(1)
        assert orders[0] == orders[1] != tuple(dataset.as_numpy_iterator())

    def test_repeated(self):
        """Each round is the next epoch."""
        of_ranks = [
            list(datasets.divided(tf.data.Dataset.range(9), d, 0, None).repeat(2))
            for d in divisions(2, shuffle=True)
        ]
        rounds = [[part[: len(part) // 2], part[len(part) // 2 :]] for part in of_ranks]
        for epoch in range(2):
            assert_covers([part[epoch] for part in rounds], 9, "keep")
        assert rounds[0][0] != rounds[0][1]

    def test_through_a_small_buffer(self):
        parts = [
            list(datasets.divided(tf.data.Dataset.range(20), d, 0, 3).as_numpy_iterator())
            for d in divisions(2, shuffle=True)
        ]
        assert_covers(parts, 20, "keep")

    @pytest.mark.parametrize("known", [True, False])
    @pytest.mark.parametrize("uneven", ["drop", "pad"])
    def test_elements_keep_their_structure(self, uneven, known):
        Pair = collections.namedtuple("Pair", "x y")
        one = np.arange(5)
        sparse = tf.sparse.from_dense(tf.eye(5))
        for structure in (
            (one,),
            (one, {"a": one, "b": (one,)}),
            {"a": one},
            Pair(one, one),
            sparse,
            (sparse, {"a": tf.ragged.constant([[1]] * 5)}),
        ):
            dataset = tf.data.Dataset.from_tensor_slices(structure)
            if not known:
                dataset = dataset.filter(lambda *_: True)
            [part, _] = [datasets.divided(dataset, d, 0, 9) for d in divisions(2, uneven, True)]
            assert part.element_spec == dataset.element_spec


class TestArrays:
    def test_all_kinds_in_one_structure(self):
        numbers = np.arange(7)
        given = {
            "numpy": numbers,
            "tensor": tf.constant(numbers),
            "ragged": tf.ragged.constant([[n] * n for n in range(7)]),
            "pair": (numbers[:, None], None),
            "inputs": [numbers, tf.strings.as_string(numbers)],
        }
        assert arrays.length_of(given) == 7
        for positions in (slice(1, None, 3), np.array([4, 1])):
            part = arrays.taken(given, positions)
            expected = list(numbers[positions])
            assert list(part["numpy"]) == list(part["tensor"].numpy()) == expected
            assert part["ragged"].to_list() == [[n] * n for n in expected]
            assert list(part["pair"][0][:, 0]) == expected and part["pair"][1] is None
            assert [int(text) for text in part["inputs"][1].numpy()] == expected

    @pytest.mark.parametrize(
        "positions",
        [slice(1, None, 3), np.array([4, 1]), np.array([6, 0, 0, 5, 2, 6]), np.array([], int)],
        ids=["not shuffled", "shuffled", "used again", "none"],
    )
    def test_every_kind_of_array(self, positions, tmp_path, monkeypatch):
        numbers = np.arange(21.0).reshape(7, 3)
        numbers[2:4] = 0  # rows without entries
        expected = numbers[positions]
        mapped = np.memmap(tmp_path / "rows", numbers.dtype, "w+", shape=numbers.shape)
        mapped[:] = numbers
        dense = tf.constant(numbers)
        monkeypatch.setattr(arrays, "_BLOCK", 2 * numbers[0].nbytes)
        with h5py.File(tmp_path / "rows.h5", "w") as file:
            part = arrays.taken(file.create_dataset("rows", data=numbers), positions)
        np.testing.assert_array_equal(part, expected)
        for sparse in (scipy.sparse.coo_matrix, scipy.sparse.csr_matrix, scipy.sparse.csc_array):
            part = arrays.taken(sparse(numbers), positions)
            np.testing.assert_array_equal(part.toarray(), expected)
        part = arrays.taken(tf.sparse.from_dense(dense), positions)
        np.testing.assert_array_equal(tf.sparse.to_dense(part), expected)
        np.testing.assert_array_equal(arrays.taken(mapped, positions), expected)
        frame = pandas.DataFrame(numbers, index=list("gfedcba"), columns=["a", "b", "c"])
        nested = {"frame": frame, "more": [dense, {"series": frame["b"]}, (dense, None)]}
        part = arrays.taken(nested, positions)
        np.testing.assert_array_equal(part["frame"], expected)
        np.testing.assert_array_equal(part["more"][1]["series"], expected[:, 1])
        np.testing.assert_array_equal(part["more"][2][0], expected)

    def test_order_of_sparse_and_of_files_is_compared(self, tmp_path):
        numbers = np.arange(6.0).reshape(3, 2)
        for kind in (tf.sparse.from_dense, scipy.sparse.coo_matrix, pandas.DataFrame):
            ours, others = (arrays.fingerprint(kind(n)) for n in (numbers, numbers[::-1]))
            assert ours is not None and ours != others, kind

    def test_a_list_is_its_items(self):
        files = [Path(f"{n}.txt") for n in range(5)]
        assert arrays.taken(files, slice(1, None, 2)) == files[1::2]
        assert arrays.taken(files, np.array([3, 0])) == [files[3], files[0]]

    def test_not_shuffled_is_a_view(self):
        numbers = np.arange(7)
        assert np.shares_memory(arrays.taken(numbers, slice(0, None, 2)), numbers)

    @pytest.mark.parametrize("wrong", [3, "text", ("a", "b"), {}, (1.0, None), iter([1])])
    def test_what_cannot_be_divided(self, wrong):
        with pytest.raises(TypeError, match=r"Received: data.* Expected: "):
            arrays.length_of(wrong)

    def test_unequal_lengths(self):
        with pytest.raises(ValueError, match=r"lengths \[2, 3\]"):
            arrays.length_of((np.zeros(2), np.zeros(3)))


@pytest.mark.ranks(1, 2, 4)
class TestOnRanks:
    def test_parts_of_all_ranks(self):
        numbers = np.arange(2 * hvd.size() + 1)
        parts = hvd.allgather_object(hvd.shard(numbers, shuffle=True, seed=3))
        assert sorted(np.concatenate(parts)) == list(numbers)
        dataset = hvd.shard(tf.data.Dataset.from_tensor_slices(numbers), shuffle=True, seed=3)
        for epoch in range(2):
            parts = hvd.allgather_object(list(dataset.as_numpy_iterator()))
            assert sorted(np.concatenate(parts)) == list(numbers), epoch
        assert hvd.shard(list("abcdefgh"))[0] == "abcdefgh"[hvd.rank()]

    def test_wrong_arguments(self):
        with pytest.raises(ValueError, match="Expected: one of keep, drop, pad"):
            hvd.shard([1], uneven="even")
        with pytest.raises(ValueError, match=r"seed=-1.*Expected: 0 or above"):
            hvd.shard([1], seed=-1)
        with pytest.raises(ValueError, match="buffer_size=<number of elements>"):
            hvd.shard(tf.data.Dataset.range(3).repeat(), shuffle=True)

    @in_both_keras
    def test_fit_sees_each_sample_once(self, package):
        keras = keras_of(package)
        x, y = data(seed=0, samples=4 * hvd.size() + 3)
        model = make_model(keras)
        model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.0)), "mse")
        dataset = hvd.shard(tf.data.Dataset.from_tensor_slices((x, y)), shuffle=True).batch(4)
        history = model.fit(
            dataset, epochs=2, verbose=0, callbacks=[hvd.callbacks.MetricAverageCallback()]
        )
        expected = [model.evaluate(x, y, verbose=0)] * 2
        np.testing.assert_allclose(history.history["loss"], expected, rtol=1e-5)


@pytest.mark.ranks(2, 4)
class TestMistakes:
    """What the ranks see together, or one of them in its dataset."""

    def said(self, caplog):
        """What rank 0 was told; the others are told nothing."""
        texts = [r.getMessage() for r in caplog.records if "hvd.shard" in r.getMessage()]
        caplog.clear()
        assert hvd.rank() == 0 or not texts
        return "\n".join(hvd.broadcast_object(texts, root_rank=0))

    def test_nothing_is_said_where_all_is_well(self, caplog):
        dataset = tf.data.Dataset.from_tensor_slices(np.arange(8)).shuffle(8, seed=3).map(abs)
        hvd.shard(dataset)
        hvd.shard((np.arange(8), tf.constant(list("abcdefgh"))))
        hvd.shard([f"/data/of/rank{hvd.rank()}/{n}.tfrecord" for n in range(3)])
        hvd.shard([object(), object()])
        assert not self.said(caplog)

    def test_shuffle_without_a_seed(self, caplog, monkeypatch):
        monkeypatch.setattr(context.context(), "_seed", None)  # which other tests have set
        hvd.shard(tf.data.Dataset.range(8).shuffle(8).map(abs))
        assert "without a seed" in self.said(caplog)

    def test_shuffle_with_unequal_seeds(self, caplog):
        hvd.shard(tf.data.Dataset.range(8).shuffle(8, seed=hvd.rank()))
        assert "a seed that differs between ranks" in self.said(caplog)
        tf.random.set_seed(hvd.rank())
        hvd.shard(tf.data.Dataset.range(8).shuffle(8, seed=1))
        tf.random.set_seed(0)
        assert "a seed that differs between ranks" in self.said(caplog)

    def test_twice(self, caplog):
        for shuffle in (False, True):
            dataset = hvd.shard(tf.data.Dataset.range(16), shuffle=shuffle).map(abs)
            assert not self.said(caplog)
            hvd.shard(dataset)
            assert "was divided before" in self.said(caplog)
        with pytest.raises(ValueError, match="divided already") as caught:
            hvd.shard(hvd.shard(list(range(hvd.size() + 1))))
        assert f"length={[2] + [1] * (hvd.size() - 1)}" in str(caught.value)
        hvd.shard(hvd.shard(np.arange(hvd.size() * 2)))
        assert "not the same on all ranks" in self.said(caplog)

    def test_batches(self, caplog):
        hvd.shard(tf.data.Dataset.range(8).batch(2).prefetch(1), shuffle=True)
        assert "batches are shuffled, not samples" in self.said(caplog)

    def test_order_of_readiness(self, caplog):
        unordered = tf.data.Dataset.range(8).map(abs, num_parallel_calls=2, deterministic=False)
        hvd.shard(unordered)
        assert "ready first" in self.said(caplog)

    def test_other_orders_of_arrays_and_files(self, caplog):
        order = np.random.default_rng(hvd.rank()).permutation(100)
        hvd.shard({"x": np.arange(100)[order]})
        assert "other elements on ranks [1" in self.said(caplog)
        files = ["b.txt", "a.txt"]
        hvd.shard(sorted(files) if hvd.rank() else files)
        assert "names of files sorted" in self.said(caplog)

    def test_unequal_arguments_are_an_error_on_all_ranks(self):
        with pytest.raises(ValueError, match=r"seed=\[0, 1.*Expected: one seed"):
            hvd.shard([1, 2], shuffle=True, seed=hvd.rank())

    def test_without_comparing_one_rank_may_call_it(self):
        if hvd.rank() == 0:
            assert hvd.shard([1, 2], compare=False) == [1]

    def test_in_a_process_set(self):
        last = tfhvd.add_process_set([hvd.size() - 1])
        if last.included():
            assert hvd.shard([1, 2, 3], process_set=last) == [1, 2, 3]
        else:
            with pytest.raises(ValueError, match="not in the process set"):
                hvd.shard([1, 2, 3], process_set=last)
        hvd.barrier()
        tfhvd.remove_process_set(last)
