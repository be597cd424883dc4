"""Compressions without state: none, or casts to 16 bits."""

from __future__ import annotations

from typing import Union

import tensorflow as tf

_WIDE = (tf.float32, tf.float64)


class Compressor:
    """A way to make a tensor smaller before a reduction. Subclass it for another compression.

    Example:
        >>> small, context = hvd.Compression.fp16.compress(gradient)
        >>> gradient = hvd.Compression.fp16.decompress(small, context)
    """

    @staticmethod
    def compress(tensor: tf.Tensor) -> tuple[tf.Tensor, object]:
        """Returns the tensor to send, and a context with which `decompress` can undo this."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: tf.Tensor, ctx: object) -> tf.Tensor:
        """Returns a tensor of the type before `compress`."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """No compression: tensors travel unchanged."""

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
    """A cast of float32 and float64; tensors of other types travel unchanged."""

    travels_as: tf.DType

    @classmethod
    def compress(cls, tensor: tf.Tensor) -> tuple[tf.Tensor, object]:
        """Returns the tensor in 16 bits if it is wider, and its type."""
        wide = tensor.dtype in _WIDE
        return (tf.cast(tensor, cls.travels_as) if wide else tensor), tensor.dtype

    @staticmethod
    def decompress(tensor: tf.Tensor, ctx: object) -> tf.Tensor:
        """Returns the tensor in its original type."""
        return tensor if tensor.dtype == ctx else tf.cast(tensor, ctx)


class FP16Compressor(_CastCompressor):
    """A cast of float32 and float64 to float16: 11 bits of precision, up to 65504."""

    travels_as = tf.float16


class BF16Compressor(_CastCompressor):
    """A cast of float32 and float64 to bfloat16: 8 bits of precision, float32's range."""

    travels_as = tf.bfloat16


# The type of `compression` in functions without a state: a class, or an object of the class.
Compressing = Union[type[Compressor], Compressor]
