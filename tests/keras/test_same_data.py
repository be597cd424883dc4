"""Ranks that all train on the same data are told, once, with the line to write."""

import numpy as np
import pytest
import tensorflow as tf
from flavours import data, in_both_keras, keras_of, make_model
from variants import also

import tfhvd.keras as hvd
from tfhvd.keras.checks.same_data import digest_of

pytestmark = pytest.mark.ranks(2, 4)


def fit(package, x, y=None, size=None, **arguments):
    keras = keras_of(package)
    model = make_model(keras, 0)
    model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), "mse")
    for _ in range(2):
        model.fit(x, y, batch_size=size, epochs=2, verbose=0, **arguments)
    return model


def told(said):
    """Whether the first rank, and no other one, is told so once."""
    lines = said()
    assert all("on the same data" in line and "hvd.shard" in line for line in lines)
    return hvd.allgather_object(len(lines))


def dataset(arrays):
    return tf.data.Dataset.from_tensor_slices(arrays).batch(4)


@in_both_keras
@pytest.mark.parametrize("shuffle", [True, also(False)])
@pytest.mark.parametrize("kind", [np.asarray, also(tf.constant)])
def test_arrays(package, shuffle, kind, said):
    fit(package, *map(kind, data(seed=0)), 4, shuffle=shuffle)
    assert told(said) == [1] + [0] * (hvd.size() - 1)


@in_both_keras
def test_datasets(package, said):
    fit(package, dataset(data(seed=0)))
    assert told(said) == [1] + [0] * (hvd.size() - 1)


@in_both_keras
@pytest.mark.parametrize("kind", ["arrays", "dataset", also("generator")])
def test_ranks_that_have_their_parts_are_told_nothing(package, kind, said):
    x, y = data(seed=0, samples=8 * hvd.size())
    if kind == "arrays":
        fit(package, *hvd.shard((x, y)), 4)
    elif kind == "dataset":
        fit(package, dataset(hvd.shard((x, y))))
    else:
        own = data(seed=hvd.rank())
        endless = (own for _ in iter(int, 1))
        fit(package, endless, steps_per_epoch=2)
    assert told(said) == [0] * hvd.size()


def test_rows_that_are_all_equal_tell_nothing(said):
    fit("keras", np.ones([8, 4], "float32"), np.ones([8, 1], "float32"), 4)
    assert told(said) == [0] * hvd.size()


def test_ranks_with_layers_of_their_own_may_share_data(said):
    keras = keras_of("keras")
    model = make_model(keras, 0)
    plain = keras.optimizers.SGD(0.01)
    optimizer = hvd.PartialDistributedOptimizer(plain, local_layers=model.layers[0])
    model.compile(optimizer, "mse")
    model.fit(*data(seed=0), verbose=0)
    assert told(said) == [0] * hvd.size()


def test_the_setting_that_looks_at_nothing(said, monkeypatch):
    monkeypatch.setattr("tfhvd.ops.sync_monitor.is_asked_for", lambda: False)
    fit("keras", *data(seed=0), 4)
    assert told(said) == [0] * hvd.size()


def test_a_rank_that_trains_by_itself(said):
    ranks = [hvd.add_process_set([rank]) for rank in range(hvd.size())]
    keras = keras_of("keras")
    model = make_model(keras, 0)
    own = hvd.DistributedOptimizer(keras.optimizers.SGD(0.01), process_set=ranks[hvd.rank()])
    model.compile(own, "mse")
    model.fit(*data(seed=0), verbose=0)
    assert told(said) == [0] * hvd.size()
    for one in ranks:
        hvd.remove_process_set(one)


def test_digests():
    x, y = data(seed=0, samples=1000)
    assert digest_of([x, y]) == digest_of([x.copy(), y]) == digest_of({"a": x, "b": y})
    assert digest_of([x, y]) == digest_of([tf.constant(x), tf.constant(y)])
    others = [x[:-1], x[:, :3], x.astype("float64"), x + 1, x[::-1]]
    assert len({digest_of([other, None]) for other in [x, *others]}) == 6
    words = np.array([["a"], ["b"]], object)
    for kind in (np.array, tf.constant):
        digests = [digest_of(kind(some)) for some in (words, words.copy(), words[::-1])]
        assert digests[0] == digests[1] != digests[2]
    assert [digest_of(rows) for rows in [x[:1], np.ones([9, 2])]] == [0, 0]
    assert [digest_of(thing) for thing in [3, dataset((x, y)), iter([x]), x[:0]]] == [None] * 4
