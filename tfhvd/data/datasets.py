"""A part of a `tf.data.Dataset`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfhvd.compat import datasets as datasets_compat
from tfhvd.data.partition import DROP, KEEP, Division
from tfhvd.data.repartition import changes, place_now

_LARGEST_SEED = 2**31 - 2  # TensorFlow keeps 31 bits


def length_of(dataset: tf.data.Dataset) -> int | None:
    """Returns how many elements a dataset has; None if it does not say, or has no end."""
    length = int(dataset.cardinality())
    return None if length < 0 else length


def divided(
    dataset: tf.data.Dataset,
    division: Division,
    epoch: int | tf.Variable,
    buffer_size: int | None,
    follows: bool = False,
) -> tf.data.Dataset:
    """Returns this rank's part of a dataset.

    Args:
        dataset: the same on all ranks.
        division: which part, in which order.
        epoch: of the first iteration, each further one is of the next; or a variable, from which
            each iteration reads it.
        buffer_size: of the shuffle; None for all elements.
        follows: whether each iteration is divided among the ranks of that time. It has no more
            elements than the part has now, which is the dataset's length.

    Raises:
        ValueError: if the dataset must be shuffled as a whole, and its length is unknown.
    """
    length = length_of(dataset)
    if division.shuffle and buffer_size is None and length is None:
        raise ValueError(
            "A dataset of unknown length can be shuffled through a buffer only; pass "
            "buffer_size=<number of elements>, as for Dataset.shuffle."
        )
    size = max(buffer_size or length or 0, 1)  # of no elements, too

    def whole(division: Division, number: tf.Tensor) -> tf.data.Dataset:
        if not division.shuffle:
            return _evened(dataset, division, length)
        datasets_compat.seed_graph(1 + division.seed % _LARGEST_SEED)
        shuffled = dataset.shuffle(size, seed=number + 1, reshuffle_each_iteration=False)
        return _evened(shuffled, division, length)

    if follows:
        part = _epochs(epoch).flat_map(lambda number: _part_now(whole, division, number))
        return part if length is None else of_length(part, division.own(length))
    if division.shuffle:
        used = _epochs(epoch).flat_map(lambda number: whole(division, number))
    else:
        used = whole(division, tf.constant(0))
    if length is not None:
        used = used.apply(tf.data.experimental.assert_cardinality(division.used(length)))
    return used.shard(division.size, division.rank)


def _part_now(
    whole: Callable[[Division, tf.Tensor], tf.data.Dataset], division: Division, number: tf.Tensor
) -> tf.data.Dataset:
    """Returns this rank's part among the ranks that there are when the dataset is read."""
    rank, size = (tf.ensure_shape(n, []) for n in tf.numpy_function(place_now, [], [tf.int64] * 2))
    return whole(dataclasses.replace(division, rank=rank, size=size), number).shard(size, rank)


def rows_in(batch: Any) -> tf.Tensor:
    """Returns how many rows a batch has."""
    leaf = tf.nest.flatten(batch)[0]
    return leaf.nrows() if isinstance(leaf, tf.RaggedTensor) else tf.shape(leaf)[0]


def of_length(dataset: tf.data.Dataset, length: int) -> tf.data.Dataset:
    """Returns at most so many elements, of a dataset that says that it has as many.

    Keras goes by what it says, and so does `len`.
    """
    # It has no end, as TensorFlow sees it, and no elements.
    endless = tf.data.Dataset.range(1).flat_map(lambda _: dataset.take(0)).repeat()
    return dataset.concatenate(endless).take(length)


def _epochs(epoch: int | tf.Variable) -> tf.data.Dataset:
    """Returns a dataset of one number: that of the epoch which begins with the iteration."""
    once = tf.data.Dataset.from_tensors(0)
    if isinstance(epoch, tf.Variable):
        return once.map(lambda _: tf.cast(epoch.read_value(), tf.int64))
    with tf.device("CPU"):
        next_epoch = tf.Variable(epoch, dtype=tf.int64, trainable=False)
    changes.note_epochs(next_epoch)
    return once.map(lambda _: next_epoch.assign_add(1) - 1)


def _evened(dataset: tf.data.Dataset, division: Division, length: int | None) -> tf.data.Dataset:
    """Returns the elements that are used: all, or as many as make equal parts."""
    alone = not tf.is_tensor(division.size) and division.size == 1
    if division.uneven == KEEP or alone:
        return dataset
    if division.uneven == DROP and length is not None:
        return dataset.take(division.used(length))
    if division.uneven != DROP:
        # Enough to complete the last round, from the beginning, however often that takes.
        more = division.size - 1 if length is None else division.used(length) - length
        # Not by `repeat`, which TensorFlow merges with the shuffle before, into one without an end.
        again = tf.data.Dataset.range(more).flat_map(lambda _: dataset)
        padded = dataset.concatenate(again.take(more))
        if length is not None:
            return padded
        dataset = padded

    def elements(*windows: Any) -> tf.data.Dataset:
        """Returns the elements of a window: TensorFlow makes it of one dataset a component."""
        parts = tf.nest.pack_sequence_as(dataset.element_spec, tf.nest.flatten(windows))
        return parts if isinstance(parts, tf.data.Dataset) else tf.data.Dataset.zip(parts)

    return dataset.window(division.size, drop_remainder=True).flat_map(elements)
