"""Collectives in the functions of tf.data."""

import numpy as np
import pytest
import tensorflow as tf

import tfhvd as hvd

pytestmark = pytest.mark.ranks(1, 2)


def total(x):
    return hvd.allreduce(x * (hvd.rank() + 1), op=hvd.Sum)


@pytest.mark.parametrize("calls", [None, 1])
def test_a_map_of_one_element_at_a_time(calls):
    data = tf.data.Dataset.range(20).map(lambda x: x + 1, num_parallel_calls=4)
    data = data.map(total, num_parallel_calls=calls).prefetch(2)
    ranks = sum(range(1, hvd.size() + 1))
    np.testing.assert_array_equal(list(data.as_numpy_iterator()), np.arange(1, 21) * ranks)


@pytest.mark.parametrize("calls", [2, tf.data.AUTOTUNE], ids=["2", "autotune"])
def test_a_map_of_several_elements_at_once_is_refused(calls):
    data = tf.data.Dataset.range(20)
    text = r"tf.data .* several elements at once.*Pass num_parallel_calls=None or 1 to the map"
    with pytest.raises(NotImplementedError, match=text):
        data.map(total, num_parallel_calls=calls)
    with pytest.raises(NotImplementedError, match=text):
        data.map(tf.function(lambda x: total(x) + 1), num_parallel_calls=calls)
    with pytest.raises(NotImplementedError, match=text):
        data.interleave(
            lambda x: tf.data.Dataset.from_tensors(total(x)),
            cycle_length=2,
            num_parallel_calls=calls,
        )
    assert total(1) == sum(range(1, hvd.size() + 1))  # outside all is as ever
