"""Compressions of tensors for the network: none, casts to 16 bits, top-k and PowerSGD.

Casts (`cast`) have no state and work with every reduction. `top_k` and `power_sgd` send a part of a
gradient, and add the rest to the next gradient (`stateful`): for optimizers and tapes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Union

from tfhvd.compression.cast import (
    BF16Compressor,
    Compressing,
    Compressor,
    FP16Compressor,
    NoneCompressor,
)
from tfhvd.compression.power_sgd import PowerSGD
from tfhvd.compression.stateful import StatefulCompression
from tfhvd.compression.top_k import TopK

if TYPE_CHECKING:
    from typing import TypeGuard


class Compression:
    """The compressions: `none`, `fp16`, `bf16`, and the classes `topk` and `powersgd`.

    Example:
        >>> hvd.DistributedOptimizer(optimizer, compression=hvd.Compression.fp16)
        >>> hvd.DistributedOptimizer(optimizer, compression=hvd.Compression.powersgd(rank=4))
    """

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
    topk = TopK
    powersgd = PowerSGD


# The type of `compression` in optimizers and tapes.
AnyCompression = Union[Compressing, StatefulCompression]


def has_state(compression: AnyCompression) -> TypeGuard[StatefulCompression]:
    """Returns whether a compression keeps a state for each variable."""
    return isinstance(compression, StatefulCompression)


def without_state(compression: AnyCompression) -> Compressing:
    """Returns the compression, or `Compression.none` if it has a state."""
    return Compression.none if isinstance(compression, StatefulCompression) else compression


__all__ = [
    "AnyCompression",
    "BF16Compressor",
    "Compressing",
    "Compression",
    "Compressor",
    "FP16Compressor",
    "NoneCompressor",
    "PowerSGD",
    "StatefulCompression",
    "TopK",
    "has_state",
    "without_state",
]
