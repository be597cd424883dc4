"""Top-k: sends the largest elements of each gradient."""

from __future__ import annotations

import math

import tensorflow as tf

from tfhvd.compression.stateful import Exchange, StatefulCompression


class TopK(StatefulCompression):
    """A compression that sends the largest elements of each gradient, with error feedback.

    Of n elements each rank sends the `ceil(ratio * n)` elements of largest magnitude, as float32
    with int32 positions, and gets the elements of all ranks. This saves bytes while
    `2 * ratio * ranks` is well below 1. The state is the error, of the gradient's shape.

    Args:
        ratio: the part of the elements to send, above 0 and at most 1.
        least: the smallest number of elements of a gradient that is compressed.

    Raises:
        ValueError: if `ratio` is out of range.

    Example:
        >>> optimizer = hvd.DistributedOptimizer(
        ...     keras.optimizers.SGD(0.1), compression=hvd.Compression.topk(ratio=0.01)
        ... )
    """

    def __init__(self, ratio: float = 0.01, least: int = 1024) -> None:
        if not 0.0 < ratio <= 1.0:
            raise ValueError(f"Received: ratio={ratio}. Expected: above 0, at most 1.")
        super().__init__()
        self.ratio = ratio
        self.least = least

    def _pays(self, tensor: tf.Tensor | tf.Variable) -> bool:
        return self.least <= tensor.shape.num_elements() < 2**31

    def _exchange(
        self, whole: tf.Tensor, index: int, exchange: Exchange
    ) -> tuple[tf.Tensor, tf.Tensor]:
        del index
        size = whole.shape.num_elements()
        flat = tf.reshape(whole, [size])
        _, chosen = tf.math.top_k(
            tf.abs(flat), k=max(1, math.ceil(self.ratio * size)), sorted=False
        )
        values = tf.gather(flat, chosen)
        sent = tf.scatter_nd(chosen[:, tf.newaxis], values, [size])
        [of_ranks, places], part = exchange.gather([values, chosen], "entries")
        of_ranks *= tf.cast(part, of_ranks.dtype)
        together = tf.math.unsorted_segment_sum(of_ranks, places, size)
        shape = whole.shape
        return tf.reshape(sent, shape), tf.reshape(together, shape)
