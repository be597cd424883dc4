"""What a reduction computes."""

from __future__ import annotations

import enum


class ReduceOp(enum.IntEnum):
    """An operation over the ranks. The numbers are those of cc/base/types.h."""

    Average = 0
    Sum = 1
    Min = 2
    Max = 3
    Product = 4
    Adasum = 5  # of an allreduce: cc/collectives/adasum.h

    def __repr__(self) -> str:
        return self.name

    __str__ = __repr__


Average = ReduceOp.Average
Sum = ReduceOp.Sum
Min = ReduceOp.Min
Max = ReduceOp.Max
Product = ReduceOp.Product
Adasum = ReduceOp.Adasum


def chosen(op: ReduceOp | int | None, average: bool | None) -> ReduceOp:
    """Returns the operation that `op` and Horovod's older argument `average` ask for together.

    Raises:
        ValueError: if both are given, or `op` is none of the operations.

    Example:
        >>> chosen(None, None), chosen(None, False)
        (Average, Sum)
    """
    if average is not None:
        if op is not None:
            raise ValueError(
                f"`average` is the older name of `op`, and both were given (average={average}, "
                f"op={op!r}); pass `op` alone."
            )
        return Average if average else Sum
    if op is None:
        return Average
    try:
        return ReduceOp(op)
    except ValueError:
        raise ValueError(
            f"Received: op={op!r}. Expected: hvd.Average, hvd.Sum, hvd.Min, hvd.Max, hvd.Product "
            "or hvd.Adasum."
        ) from None


def chosen_for_parts(op: ReduceOp | int | None) -> ReduceOp:
    """Returns the operation of a reduction of which each rank gets a part.

    Raises:
        ValueError: for Adasum, which is for whole gradients, and for what `chosen` refuses.

    Example:
        >>> chosen_for_parts(None)
        Average
    """
    if op == Adasum:
        raise ValueError(
            "Adasum combines whole gradients, and here each rank gets a part; use hvd.allreduce, "
            "or pass op=hvd.Average, hvd.Sum, hvd.Min, hvd.Max or hvd.Product."
        )
    return chosen(op, None)
