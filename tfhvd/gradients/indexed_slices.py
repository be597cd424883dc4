"""Reducing IndexedSlices over the ranks: as rows, or as whole tensors if they are smaller.

Rows are gathered: every rank gets all rows of all ranks. A whole tensor is added up instead, with
the number of ranks that have each row, so that the result has the same rows either way: optimizers
do not change other rows. The ranks add up their numbers of rows, and the sum decides: it is the
same on all ranks, independent of their earlier steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tfhvd.compat import graphs
from tfhvd.compression import Compressing
from tfhvd.ops import Average, ReduceOp, Sum, allgather, allreduce, grouped_allreduce
from tfhvd.ops.names import Identity
from tfhvd.ops.weighted_allreduce import weighted_allreduce
from tfhvd.runtime.native import load_native
from tfhvd.runtime.process_sets import ProcessSet

if TYPE_CHECKING:
    from tfhvd.compat.types import Variable


def name_of_first(name: str) -> Identity:
    """Names the first collective of the slices `name`, compiled or not.

    Ranks of which only some have compiled so fail together, instead of waiting for each other.
    """
    return Identity(f"{name}/rows")


def is_sparse(gradient: object) -> bool:
    """Whether a gradient is an IndexedSlices."""
    return isinstance(gradient, tf.IndexedSlices)


def sum_duplicates(slices: tf.IndexedSlices) -> tf.IndexedSlices:
    """Sums the rows of one index: optimizers that square a gradient must see the whole of it."""
    indices, positions = tf.unique(slices.indices)
    values = tf.math.unsorted_segment_sum(slices.values, positions, tf.shape(indices)[0])
    return tf.IndexedSlices(values, indices, slices.dense_shape)


class SlicesReducer:
    """Reduces slices, as rows or as a whole tensor as their density suggests.

    Args:
        op: Average or Sum.
        compression: a member of `Compression` without state, applied to the values.
        device: the device to reduce on, "" for that of the slices.
        process_set: the ranks that take part.
        density: from how many rows on, of all ranks together and in parts of the variable's rows, a
            whole tensor is sent; None for the setting TFHVD_SPARSE_DENSITY, 0 for never.
    """

    def __init__(
        self,
        op: ReduceOp,
        compression: Compressing,
        device: str,
        process_set: ProcessSet,
        density: float | None = None,
    ) -> None:
        self._op = op
        self._device = device
        self._process_set = process_set
        self._compression = compression
        self._density = density

    def __call__(
        self,
        slices: tf.IndexedSlices,
        variable: Variable,
        name: str,
        weight: tf.Tensor | None = None,
    ) -> tf.IndexedSlices:
        """Reduces the slices of one variable.

        Args:
            slices: without duplicate indices.
            variable: what they belong to; of the same shape on every rank.
            name: the identity of the reduction.
            weight: what this rank counts in an average, an int32 tensor; None: all count alike.

        Returns:
            Slices with every index that some rank has, once.

        Raises:
            NotImplementedError: for an op that is not Average or Sum.
        """
        if self._op not in (Average, Sum):
            raise NotImplementedError(
                f"The gradient {name} is an IndexedSlices. Received: op={self._op}. "
                "Expected: Average or Sum; for any other op pass sparse_as_dense=True."
            )
        rows = variable.shape[0]
        density = load_native().config().sparse_density if self._density is None else self._density
        if not density or rows is None:
            return self._by_rows(slices, name, weight)
        with tf.device("/CPU:0"):
            own = tf.size(slices.indices)[tf.newaxis]
            of_ranks = allgather(own, name=name_of_first(name), process_set=self._process_set)
        values, indices = tf.cond(
            tf.cast(tf.reduce_sum(of_ranks), tf.float32) >= density * int(rows),
            lambda: _parts(self._as_a_whole(slices, int(rows), name, weight)),
            lambda: _parts(self._by_rows(slices, name, weight)),
        )
        if not tf.executing_eagerly():
            # The branches hold collectives, which need no order among the function's operations.
            graphs.run_independently(_before_identities(values))
        return tf.IndexedSlices(values, indices, slices.dense_shape)

    def _by_rows(
        self, slices: tf.IndexedSlices, name: str, weight: tf.Tensor | None = None
    ) -> tf.IndexedSlices:
        gathered = allreduce(
            slices if weight is None else _with_weight(slices, weight),
            op=self._op if weight is None else Sum,
            compression=self._compression,
            device_sparse=self._device,
            name=Identity(name),
            process_set=self._process_set,
        )
        if weight is not None:
            gathered = _by_weight(gathered)
        return sum_duplicates(gathered)

    def _as_a_whole(
        self, slices: tf.IndexedSlices, rows: int, name: str, weight: tf.Tensor | None = None
    ) -> tf.IndexedSlices:
        ones = tf.ones(tf.shape(slices.indices), tf.int32)
        table, holders = (
            tf.math.unsorted_segment_sum(part, slices.indices, rows)
            for part in (slices.values, ones)
        )
        arguments: dict[str, Any] = {
            "compression": self._compression,
            "device_dense": self._device,
            "process_set": self._process_set,
        }
        of_table, of_holders = Identity(f"{name}/table"), Identity(f"{name}/holders")
        if weight is None and self._op == Sum:
            table, holders = grouped_allreduce([table, holders], op=Sum, name=of_table, **arguments)
        else:
            if weight is None:
                table = allreduce(table, op=Average, name=of_table, **arguments)
            else:
                [table] = weighted_allreduce([table], weight, of_table, **arguments)
            holders = allreduce(holders, op=Sum, name=of_holders, **arguments)
        indices = tf.where(holders > 0)[:, 0]
        values = tf.gather(table, indices)
        return tf.IndexedSlices(values, tf.cast(indices, slices.indices.dtype), slices.dense_shape)


def _with_weight(slices: tf.IndexedSlices, weight: tf.Tensor) -> tf.IndexedSlices:
    """Adds a row that is of no row of the variable: its index, below 0, says the rank's weight."""
    row = tf.zeros(tf.concat([[1], tf.shape(slices.values)[1:]], 0), slices.values.dtype)
    index = tf.cast(-1 - weight, slices.indices.dtype)[tf.newaxis]
    return tf.IndexedSlices(
        tf.concat([slices.values, row], 0),
        tf.concat([slices.indices, index], 0),
        slices.dense_shape,
    )


def _by_weight(gathered: tf.IndexedSlices) -> tf.IndexedSlices:
    """Multiplies each rank's rows by its share in the weights; the ranks' last rows say these."""
    last = gathered.indices < 0
    weights = tf.cast(-1 - tf.boolean_mask(gathered.indices, last), gathered.values.dtype)
    shares = tf.math.divide_no_nan(weights, tf.reduce_sum(weights))
    rank_of_row = tf.boolean_mask(tf.cumsum(tf.cast(last, tf.int32), exclusive=True), ~last)
    values = tf.boolean_mask(gathered.values, ~last)
    share = tf.gather(shares, rank_of_row)
    share = tf.reshape(share, tf.concat([[-1], tf.ones([tf.rank(values) - 1], tf.int32)], 0))
    return tf.IndexedSlices(
        tf.math.multiply_no_nan(values, share),
        tf.boolean_mask(gathered.indices, ~last),
        gathered.dense_shape,
    )


def _parts(slices: tf.IndexedSlices) -> tuple[tf.Tensor, tf.Tensor]:
    return slices.values, slices.indices


def _before_identities(tensor: tf.Tensor) -> tf.Operation:
    operation = tensor.op
    while operation.type == "Identity":
        operation = operation.inputs[0].op
    return operation
