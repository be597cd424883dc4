"""Compressions without state: as it is, or in 16 bits."""

from __future__ import annotations

from typing import Union

import tensorflow as tf

_WIDE = (tf.float32, tf.float64)


class Compressor:
    """A way to make a tensor smaller before it is reduced. Subclass it for another one.

    Example:
        >>> small, context = hvd.Compression.fp16.compress(gradient)
        >>> gradient = hvd.Compression.fp16.decompress(small, context)
    """

    @staticmethod
    def compress(tensor: tf.Tensor) -> tuple[tf.Tensor, object]:
        """Returns what travels, and what `decompress` needs to know to undo it."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: tf.Tensor, ctx: object) -> tf.Tensor:
        """Returns a tensor of the type that was compressed."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Leaves tensors as they are."""

    @staticmethod
    def compress(tensor: tf.Tensor) -> tuple[tf.Tensor, object]:
        """Returns the tensor and None."""
        return tensor, None

    @staticmethod
    def decompress(tensor: tf.Tensor, ctx: object) -> tf.Tensor:
        """Returns the tensor."""
        del ctx
        return tensor


class _CastCompressor(Compressor):
    """Casts float32 and float64; other types travel as they are."""

    travels_as: tf.DType

    @classmethod
    def compress(cls, tensor: tf.Tensor) -> tuple[tf.Tensor, object]:
        """Returns the tensor in 16 bits if it is wider, and its type."""
        wide = tensor.dtype in _WIDE
        return (tf.cast(tensor, cls.travels_as) if wide else tensor), tensor.dtype

    @staticmethod
    def decompress(tensor: tf.Tensor, ctx: object) -> tf.Tensor:
        """Returns the tensor in its first type."""
        return tensor if tensor.dtype == ctx else tf.cast(tensor, ctx)


class FP16Compressor(_CastCompressor):
    """Lets float32 and float64 travel as float16: 11 bits of precision, up to 65504."""

    travels_as = tf.float16


class BF16Compressor(_CastCompressor):
    """Lets float32 and float64 travel as bfloat16: 8 bits of precision, float32's range."""

    travels_as = tf.bfloat16


# What may be given as `compression` where there is no state to keep: a class, or an object of it.
Compressing = Union[type[Compressor], Compressor]
