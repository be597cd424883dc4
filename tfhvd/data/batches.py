"""Batches: a dataset of a job's global batches, of which each rank has a part."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfhvd.compat import datasets as datasets_compat
from tfhvd.data import arrays, consistency, datasets, pipelines
from tfhvd.data.cursor import Cursor, Position
from tfhvd.data.order import Order
from tfhvd.data.rows import is_numbered, rows_of
from tfhvd.data.slices import Slices
from tfhvd.runtime.process_sets import ProcessSet, checked_id, global_process_set


class Batches(tf.data.Dataset):
    """A dataset of batches that do not depend on the number of ranks.

    Step s of an epoch trains on the samples from place s * `global_batch` of the epoch's order on,
    and each rank has a slice of them: the first rank has the first ones. Each sample is on one
    rank, once an epoch. The last batch of an epoch is shorter if the samples do not divide evenly;
    `fit` weighs each rank's part by its samples.

    It is a `tf.data.Dataset`. Its `map`, `prefetch` and `with_options` return `Batches`; what its
    other methods return is a dataset without a position.

    It knows its position. `for batch in batches` counts its batches, and begins at the end of the
    last loop: at the next epoch, or in the middle of an epoch. `fit` sets the position to its own
    epoch, and then counts its steps. Within a `tf.function` nothing is counted.

    Every rank makes it with the same arguments, for the ranks compare what they are given.

    In an elastic job each iteration is divided among the ranks that there are when it begins.

    Args:
        source: arrays of one length (of NumPy, pandas, h5py, or tensors), also in tuples and dicts;
            anything that has a length and gives a sample for `source[i]`, such as a dataset of
            Hugging Face or Grain; or a `tf.data.Dataset` of samples that has the same ones in the
            same order on every rank, and that each rank reads whole.
        global_batch: how many samples all ranks together train on in a step.
        shuffle: whether each epoch has a different order. Nothing is held in memory for it.
        seed: for the orders of all epochs, which do not depend on `tf.random.set_seed`.
        drop_remainder: whether the last batch is left out if it is shorter.
        compare: whether the ranks compare their arguments; False if not all ranks make `Batches`.
        process_set: the ranks that train together.

    Raises:
        TypeError: for a source of another kind.
        ValueError: on every rank, if the ranks give sources of unequal length, or other arguments;
            if arrays have different lengths; if `global_batch` is smaller than the number of ranks;
            for a negative `seed`; for a `tf.data.Dataset` with `shuffle`; on a rank that is
            not in the process set.
        NotInitializedError: before `init`.

    Example:
        >>> batches = hvd.data.Batches((x, y), 64, shuffle=True).prefetch(2)
        >>> model.fit(batches, epochs=2)
    """

    def __init__(
        self,
        source: Any,
        global_batch: int,
        *,
        shuffle: bool = False,
        seed: int = 0,
        drop_remainder: bool = False,
        compare: bool = True,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        checked_id(process_set)  # raises if this rank is not in it
        rank, size = process_set.rank(), process_set.size()
        _check(source, global_batch, shuffle, seed, size)
        is_stream = isinstance(source, tf.data.Dataset)
        rows = None if is_stream else rows_of(source)
        length = datasets.length_of(source) if rows is None else rows.length
        if compare and size > 1:
            arguments = {"length": length, "global_batch": global_batch, "shuffle": shuffle}
            arguments |= {"seed": seed, "drop_remainder": drop_remainder}
            content = None if is_stream or is_numbered(source) else arrays.fingerprint(source)
            given = consistency.Given(arguments, content)
            consistency.check("hvd.data.Batches", given, process_set)
        self._cursor = Cursor(process_set)
        slices = Slices(length or 0, global_batch, drop_remainder)
        if rows is None:
            whole = source.batch(global_batch, drop_remainder=drop_remainder)
            part = pipelines.of_stream(whole, self._cursor)
        else:
            order = Order(slices.length, shuffle, seed)
            part = pipelines.of_rows(rows, order, slices, self._cursor)
        if length is not None:
            part = datasets.of_length(part, slices.steps_of(rank, size))
        self._shuffle = shuffle
        self._wrap(part)

    @property
    def position(self) -> Position:
        """The position of the training: the epoch, and how many of its batches have been returned.

        An iterator goes by the position that is set before its first batch is asked for.
        """
        return self._cursor.position

    @position.setter
    def position(self, position: Position) -> None:
        self._cursor.position = position

    def map(self, *args: Any, **kwargs: Any) -> Batches:
        """See `tf.data.Dataset.map`; the function gets a rank's part of a batch."""
        return self._like(super().map(*args, **kwargs))

    def prefetch(self, *args: Any, **kwargs: Any) -> Batches:
        """See `tf.data.Dataset.prefetch`. The position counts batches that were handed out."""
        return self._like(super().prefetch(*args, **kwargs))

    def with_options(self, *args: Any, **kwargs: Any) -> Batches:
        """See `tf.data.Dataset.with_options`."""
        return self._like(super().with_options(*args, **kwargs))

    def cache(self, *args: Any, **kwargs: Any) -> tf.data.Dataset:
        """See `tf.data.Dataset.cache`.

        Raises:
            ValueError: for batches in shuffled orders, of which it would repeat the first.
        """
        if self._shuffle:
            raise ValueError(
                "Batches(shuffle=True).cache() would repeat the order of the first epoch. Cache "
                "the samples before: hvd.data.Batches(samples_in_memory, ...)."
            )
        return super().cache(*args, **kwargs)

    def __iter__(self) -> Any:
        if not tf.executing_eagerly():
            return super().__iter__()
        return datasets_compat.counted(self, self._cursor.advance, self._cursor.end_epoch)

    @property
    def element_spec(self) -> Any:
        """See `tf.data.Dataset.element_spec`."""
        return self._dataset.element_spec

    def _inputs(self) -> list[tf.data.Dataset]:  # what TensorFlow asks of a dataset
        return [self._dataset]

    def _like(self, dataset: tf.data.Dataset) -> Batches:
        other = Batches.__new__(Batches)
        other._cursor, other._shuffle = self._cursor, self._shuffle
        other._wrap(dataset)
        return other

    def _wrap(self, dataset: tf.data.Dataset) -> None:
        self._dataset = dataset
        super().__init__(tf.data.experimental.to_variant(dataset))


def _check(source: Any, global_batch: int, shuffle: bool, seed: int, size: int) -> None:
    if seed < 0:
        raise ValueError(f"Received: seed={seed}. Expected: 0 or above.")
    if global_batch < size:
        raise ValueError(
            "Each rank has a part of each global batch. Received: "
            f"global_batch={global_batch} on {size} ranks. Expected: {size} or above."
        )
    if shuffle and isinstance(source, tf.data.Dataset):
        raise ValueError(
            "Received: a tf.data.Dataset, and shuffle=True. Expected: a source with numbered "
            "samples; or shuffle=False, and a dataset that shuffles with a seed, the same on every "
            f"rank: dataset.shuffle(10_000, seed={seed + 1})."
        )
