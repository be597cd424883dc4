"""A rank's part of the global batches of a source, as a pipeline of `tf.data`."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tfhvd.data import datasets
from tfhvd.data.cursor import Cursor
from tfhvd.data.order import Order
from tfhvd.data.rows import Rows
from tfhvd.data.slices import Slices, part_of

_AT_ONCE = 4096  # samples whose numbers are computed together


def of_rows(rows: Rows, order: Order, slices: Slices, cursor: Cursor) -> tf.data.Dataset:
    """Returns the batches of a source with numbered samples."""
    size = int(cursor.begin()[3])
    steps_at_once = max(1, _AT_ONCE * size // slices.global_batch)

    def numbers_of(state: np.ndarray, first: np.int64) -> tuple[np.ndarray, np.ndarray]:
        epoch, _, rank, size = state.tolist()
        last = min(int(first) + steps_at_once, slices.steps)
        places, counts = slices.places(int(first), last, rank, size)
        return order.samples(epoch, places), counts[counts > 0]

    def some_steps(state: tf.Tensor, first: tf.Tensor) -> tf.data.Dataset:
        numbers, counts = tf.numpy_function(numbers_of, [state, first], [tf.int64] * 2)
        numbers.set_shape([None])
        counts.set_shape([None])
        steps = tf.RaggedTensor.from_row_lengths(numbers, counts, validate=False)
        return tf.data.Dataset.from_tensor_slices(steps)

    def from_here(state: tf.Tensor) -> tf.data.Dataset:
        firsts = tf.data.Dataset.range(state[1], slices.steps, steps_at_once)
        return firsts.flat_map(lambda first: some_steps(state, first))

    return _states(cursor).flat_map(from_here).map(rows.take)


def of_stream(dataset: tf.data.Dataset, cursor: Cursor) -> tf.data.Dataset:
    """Returns a rank's parts of the global batches of a dataset, which it reads whole."""

    def from_here(state: tf.Tensor) -> tf.data.Dataset:
        def part(*batch: Any) -> Any:
            length = tf.cast(datasets.rows_in(batch), tf.int64)
            begin, end = part_of(length, state[2], state[3])
            cut = tf.nest.map_structure(lambda leaf: leaf[begin:end], batch)
            return cut if len(cut) > 1 else cut[0]

        own = dataset.skip(state[1]).map(part)
        return own.filter(lambda *batch: datasets.rows_in(batch) > 0)

    return _states(cursor).flat_map(from_here)


def _states(cursor: Cursor) -> tf.data.Dataset:
    """Returns a dataset of one element: the position of an iterator's begin, when it is read."""

    def state(_: tf.Tensor) -> tf.Tensor:
        return tf.ensure_shape(tf.numpy_function(cursor.begin, [], tf.int64), [4])

    return tf.data.Dataset.from_tensors(0).map(state)
