"""Reducing IndexedSlices over the ranks: as rows, or as whole tensors where that is less to send.

Rows are gathered: every rank gets all rows of all ranks. A whole tensor is added up instead, with
the number of ranks that have each row beside it, so that the result has the same rows either way:
optimizers leave the others alone. Both ways tell every rank the same number of rows, by which all
of them choose the way of the next step.
"""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

from tfhvd import _compat
from tfhvd._library import load_native
from tfhvd.ops import Average, Sum, allreduce, grouped_allreduce


def is_sparse(gradient: Any) -> bool:
    """Whether a gradient is an IndexedSlices."""
    return isinstance(gradient, tf.IndexedSlices)


def sum_duplicates(slices: tf.IndexedSlices) -> tf.IndexedSlices:
    """Sums the rows of one index: optimizers that square a gradient must see the whole of it."""
    indices, positions = tf.unique(slices.indices)
    values = tf.math.unsorted_segment_sum(slices.values, positions, tf.shape(indices)[0])
    return tf.IndexedSlices(values, indices, slices.dense_shape)


class SlicesReducer:
    """Reduces slices, each variable's by the way that its last density suggests.

    Args:
        op: Average or Sum.
        compression: a member of `Compression` without state, applied to the values.
        device: where to reduce, "" for where the slices are.
        process_set: the ranks that take part.
        density: from how many rows on, of all ranks together and in parts of the variable's rows, a
            whole tensor is sent; None for the setting TFHVD_SPARSE_DENSITY, 0 for never.
    """

    def __init__(
        self, op: Any, compression: Any, device: str, process_set: Any, density: float | None = None
    ) -> None:
        self._op = op
        self._device = device
        self._process_set = process_set
        self._compression = compression
        self._density = density

    def __call__(self, slices: tf.IndexedSlices, variable: Any, name: str) -> tf.IndexedSlices:
        """Reduces the slices of one variable.

        Args:
            slices: without duplicate indices.
            variable: what they belong to; of the same shape on every rank.
            name: the identity of the reduction.

        Returns:
            Slices with every index that some rank has, once.

        Raises:
            ValueError: for an op that is not Average or Sum.
        """
        if self._op not in (Average, Sum):
            raise ValueError(
                f"The gradient {name} is an IndexedSlices. Received: op={self._op}. "
                "Expected: Average or Sum; for any other op pass sparse_as_dense=True."
            )
        least = self._least_rows(variable)
        if math.isinf(least):
            values, indices, _ = self._by_rows(slices, name)
            return tf.IndexedSlices(values, indices, slices.dense_shape)
        way = self._way_of(variable)
        values, indices, rows = tf.cond(
            way,
            lambda: self._as_a_whole(slices, int(variable.shape[0]), name),
            lambda: self._by_rows(slices, name),
        )
        if not tf.executing_eagerly():
            # The branches hold collectives, which need no order among the function's operations.
            _compat.run_independently(_before_identities(values))
        way.assign(tf.cast(rows, tf.float32) >= least)
        return tf.IndexedSlices(values, indices, slices.dense_shape)

    def _least_rows(self, variable: Any) -> float:
        """From how many rows on a whole tensor is sent; infinity for never."""
        density = load_native().config().sparse_density if self._density is None else self._density
        with tf.init_scope():
            # In a graph with a session, somebody would have to initialize a variable of ours.
            keeps_state = tf.executing_eagerly()
        is_variable = isinstance(_compat.tf_variable(variable), tf.Variable)
        if not density or not keeps_state or not is_variable:
            return math.inf
        rows = variable.shape[0]
        return math.inf if rows is None else density * int(rows)

    def _way_of(self, variable: Any) -> tf.Variable:
        """Returns whether the variable's next gradient goes as a whole tensor.

        Kept with the variable, for a tape lives for one step.
        """
        ways = vars(_compat.tf_variable(variable)).setdefault("_tfhvd_ways", {})
        key = self._process_set.process_set_id
        if key not in ways:
            ways[key] = _compat.state_variable(False, tf.bool, "as_a_whole")
        return ways[key]

    def _by_rows(self, slices: tf.IndexedSlices, name: str) -> tuple[tf.Tensor, ...]:
        """Returns values, indices, and how many rows all ranks have sent."""
        gathered = allreduce(
            slices,
            op=self._op,
            compression=self._compression,
            device_sparse=self._device,
            name=name,
            process_set=self._process_set,
        )
        together = sum_duplicates(gathered)
        return together.values, together.indices, tf.shape(gathered.indices)[0]

    def _as_a_whole(self, slices: tf.IndexedSlices, rows: int, name: str) -> tuple[tf.Tensor, ...]:
        """Returns what `_by_rows` returns."""
        ones = tf.ones(tf.shape(slices.indices), tf.int32)
        table, holders = (
            tf.math.unsorted_segment_sum(part, slices.indices, rows)
            for part in (slices.values, ones)
        )
        table, holders = grouped_allreduce(
            [table, holders],
            op=Sum,
            compression=self._compression,
            device_dense=self._device,
            # The name of the first collective of `_by_rows`: ranks that went different ways would
            # fail together, instead of waiting for each other.
            name=f"{name}/values",
            process_set=self._process_set,
        )
        indices = tf.where(holders > 0)[:, 0]
        values = tf.gather(table, indices)
        if self._op == Average:
            values /= tf.cast(self._process_set.size(), values.dtype)
        return values, tf.cast(indices, slices.indices.dtype), tf.reduce_sum(holders)


def _before_identities(tensor: tf.Tensor) -> tf.Operation:
    operation = tensor.op
    while operation.type == "Identity":
        operation = operation.inputs[0].op
    return operation
