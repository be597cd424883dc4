"""Reducing IndexedSlices over the ranks: as rows, or as whole tensors where that is less to send.

Rows are gathered: every rank gets all rows of all ranks. A whole tensor is added up instead, with
the number of ranks that have each row beside it, so that the result has the same rows either way:
optimizers leave the others alone. Both ways tell every rank the same number of rows, by which all
of them choose the way of the next step.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tfhvd.compat import graphs
from tfhvd.compat.variables import state_variable, tf_variable
from tfhvd.compression import Compressing
from tfhvd.ops import Average, ReduceOp, Sum, allreduce, grouped_allreduce
from tfhvd.ops.names import Identity
from tfhvd.ops.weighted_allreduce import weighted_allreduce
from tfhvd.runtime.library import load_native
from tfhvd.runtime.process_sets import ProcessSet

if TYPE_CHECKING:
    from tfhvd.compat.types import Variable


# By what Python knows them as; ranks that come to a job have to begin alike.
_ways: weakref.WeakValueDictionary[int, tf.Variable] = weakref.WeakValueDictionary()


def name_of_first(name: str) -> Identity:
    """Names the first collective of the slices `name`, by rows, as a whole, or compiled.

    Ranks that go different ways so fail together, instead of waiting for each other.
    """
    return Identity(f"{name}/values")


def is_sparse(gradient: object) -> bool:
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
        least = self._least_rows(variable)
        if math.isinf(least):
            values, indices, _ = self._by_rows(slices, name, weight)
            return tf.IndexedSlices(values, indices, slices.dense_shape)
        way = self._way_of(variable)
        values, indices, rows = tf.cond(
            way,
            lambda: self._as_a_whole(slices, int(variable.shape[0]), name, weight),
            lambda: self._by_rows(slices, name, weight),
        )
        if not tf.executing_eagerly():
            # The branches hold collectives, which need no order among the function's operations.
            graphs.run_independently(_before_identities(values))
        way.assign(tf.cast(rows, tf.float32) >= least)
        return tf.IndexedSlices(values, indices, slices.dense_shape)

    def _least_rows(self, variable: Variable) -> float:
        """From how many rows on a whole tensor is sent; infinity for never."""
        density = load_native().config().sparse_density if self._density is None else self._density
        with tf.init_scope():
            # In a graph with a session, somebody would have to initialize a variable of ours.
            keeps_state = tf.executing_eagerly()
        is_variable = isinstance(tf_variable(variable), tf.Variable)
        if not density or not keeps_state or not is_variable:
            return math.inf
        rows = variable.shape[0]
        return math.inf if rows is None else density * int(rows)

    def _way_of(self, variable: Variable) -> tf.Variable:
        """Returns whether the variable's next gradient goes as a whole tensor.

        Kept with the variable, for a tape lives for one step.
        """
        ways = vars(tf_variable(variable)).setdefault("_tfhvd_ways", {})
        key = self._process_set.process_set_id
        if key not in ways:
            ways[key] = state_variable(False, tf.bool, "as_a_whole")
            _ways[id(ways[key])] = ways[key]
        return ways[key]

    def _by_rows(
        self, slices: tf.IndexedSlices, name: str, weight: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, ...]:
        """Returns values, indices, and how many rows all ranks have sent."""
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
        together = sum_duplicates(gathered)
        return together.values, together.indices, tf.shape(gathered.indices)[0]

    def _as_a_whole(
        self, slices: tf.IndexedSlices, rows: int, name: str, weight: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, ...]:
        """Returns what `_by_rows` returns."""
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
        first = name_of_first(name)
        if weight is None and self._op == Sum:
            table, holders = grouped_allreduce([table, holders], op=Sum, name=first, **arguments)
        else:
            of_table = Identity(f"{name}/table")
            if weight is None:
                table = allreduce(table, op=Average, name=of_table, **arguments)
            else:
                [table] = weighted_allreduce([table], weight, of_table, **arguments)
            holders = allreduce(holders, op=Sum, name=first, **arguments)
        indices = tf.where(holders > 0)[:, 0]
        values = tf.gather(table, indices)
        return values, tf.cast(indices, slices.indices.dtype), tf.reduce_sum(holders)


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


def forget_ways(variables: Iterable[Variable] | None = None) -> None:
    """Makes the next gradients of variables travel as rows, as the first ones do.

    For ranks that have not seen all the same gradients: they must go one way.

    Args:
        variables: None for all of this process.
    """
    if variables is None:
        found = list(_ways.values())
    else:
        of_variables = (vars(tf_variable(each)).get("_tfhvd_ways", {}) for each in variables)
        found = [way for ways in of_variables for way in ways.values()]
    for way in found:
        way.assign(False)


def _before_identities(tensor: tf.Tensor) -> tf.Operation:
    operation = tensor.op
    while operation.type == "Identity":
        operation = operation.inputs[0].op
    return operation
