"""Reducing IndexedSlices: their values and indices are gathered."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from tfhvd.compression import Compressing
from tfhvd.ops import _kernels
from tfhvd.ops._checks import to_tensor
from tfhvd.ops.names import Name
from tfhvd.ops.reduce_op import Average, ReduceOp, Sum


def check_slices(op: ReduceOp) -> None:
    """Refuses what is not defined for rows that some ranks lack.

    Raises:
        NotImplementedError: for anything but Average and Sum.
    """
    if op not in (Average, Sum):
        raise NotImplementedError(
            f"IndexedSlices can be added only. Received: op={op!r}. Expected: hvd.Average or "
            "hvd.Sum, or a dense tensor (tf.convert_to_tensor)."
        )


def reduce_slices(
    slices: Sequence[tf.IndexedSlices],
    op: ReduceOp,
    scales: tuple[float, float],
    compression: Compressing,
    key: Name,
    set_id: int,
    kind: str,
) -> list[tf.IndexedSlices]:
    """Gathers values and indices: rows of one index stay apart, and count as their sum.

    Args:
        slices: of any number of variables, agreed as one.
        op: Average or Sum.
        scales: what the values are multiplied by, before and after.
        compression: how the values travel.
        key: the collective's name.
        set_id: the number of the process set.
        kind: the operation's name, for messages.
    """
    values = [to_tensor(s.values, kind) for s in slices]
    indices = [to_tensor(s.indices, kind) for s in slices]
    pairs = [compression.compress(v) for v in values]
    # As one: if a rank fails, it is missing from the values and from the indices.
    gathered, ranks = _kernels.gather_counted(
        [*(v for v, _ in pairs), *indices], key.part("values"), set_id
    )
    small, indices = gathered[: len(slices)], gathered[len(slices) :]
    scale = scales[0] * scales[1]
    factor = scale / tf.cast(ranks, tf.float64) if op == Average else scale
    return [
        tf.IndexedSlices(scaled(compression.decompress(v, c), factor), i, s.dense_shape)
        for v, (_, c), i, s in zip(small, pairs, indices, slices)
    ]


def scaled(values: tf.Tensor, factor: tf.Tensor | float) -> tf.Tensor:
    """Multiplies values by a factor, as a reduction does."""
    if isinstance(factor, float) and factor == 1.0:
        return values
    if values.dtype.is_integer:  # as in a reduction: through float64, and cut off
        return tf.cast(tf.cast(values, tf.float64) * factor, values.dtype)
    return values * tf.cast(factor, values.dtype)
