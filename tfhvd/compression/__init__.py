"""How tensors travel: as they are, in 16 bits, or as what matters most of them.

Casts (`cast`) have no state and work with every reduction. `top_k` and `power_sgd` send a part of a
gradient, and add what they left out to the next one (`stateful`): for optimizers and tapes.
"""

from tfhvd.compression.cast import BF16Compressor, Compressor, FP16Compressor, NoneCompressor
from tfhvd.compression.power_sgd import PowerSGD
from tfhvd.compression.stateful import StatefulCompression
from tfhvd.compression.top_k import TopK


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


__all__ = [
    "BF16Compressor",
    "Compression",
    "Compressor",
    "FP16Compressor",
    "NoneCompressor",
    "PowerSGD",
    "StatefulCompression",
    "TopK",
]
