"""The collectives whose gradients Horovod scales in another way, for `import horovod`.

Their results are tfhvd's. Horovod averages the gradients that come back through an allgather or a
broadcast where tfhvd adds them up, and multiplies those of a reducescatter by the number of ranks.
docs/reference/collectives.md derives which is right.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfhvd import ops
from tfhvd.ops.topology import size_when_run


def _scaled(collective: Callable[..., Any], scale: Callable[[float], float]) -> Callable[..., Any]:
    """Wraps a collective so that the gradients of its results are scaled.

    Args:
        collective: the function of tfhvd.
        scale: from the number of ranks to the factor.
    """
    signature = inspect.signature(collective)

    @functools.wraps(collective)
    def call(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        set_id = given.arguments["process_set"].process_set_id
        results = collective(*args, **kwargs)
        return tf.nest.map_structure(lambda y: _with_scaled_gradient(y, scale, set_id), results)

    return call


def _with_scaled_gradient(
    y: tf.Tensor | tf.SparseTensor, scale: Callable[[float], float], set_id: int
) -> tf.Tensor | tf.SparseTensor:
    if isinstance(y, tf.SparseTensor):
        return y.with_values(_with_scaled_gradient(y.values, scale, set_id))
    if not (y.dtype.is_floating or y.dtype.is_complex):
        return y

    @tf.custom_gradient
    def identity(value: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        def gradient(g: tf.Tensor) -> tf.Tensor:
            ranks = tf.cast(size_when_run(set_id), tf.float64)
            return tf.math.scalar_mul(tf.cast(scale(ranks), g.dtype), g)

        return tf.identity(value), gradient

    return identity(y)


allgather = _scaled(ops.allgather, lambda ranks: 1 / ranks)
grouped_allgather = _scaled(ops.grouped_allgather, lambda ranks: 1 / ranks)
broadcast = _scaled(ops.broadcast, lambda ranks: 1 / ranks)
reducescatter = _scaled(ops.reducescatter, lambda ranks: ranks)
grouped_reducescatter = _scaled(ops.grouped_reducescatter, lambda ranks: ranks)
