"""scaled_lr: a learning rate for the batches of all ranks."""

from __future__ import annotations

import math

from tfhvd.runtime.process_sets import ProcessSet, global_process_set

_RULES = ("linear", "sqrt")


def scaled_lr(
    lr: float,
    rule: str = "linear",
    *,
    base_size: int = 1,
    passes: int = 1,
    process_set: ProcessSet = global_process_set,
) -> float:
    """Returns the learning rate for this many ranks, from the one that is right for one.

    A step of n ranks sees n times as many samples. "linear" multiplies the rate by n: n small steps
    of SGD go about as far as one that is n times as long (Goyal et al., 2017). "sqrt" multiplies it
    by the root of n: the noise of an average over n times as many samples is that much smaller,
    which is what the steps of Adam and its like go by (Malladi et al., 2022).

    Args:
        lr: the learning rate that is right where `base_size` ranks train, with this batch a rank.
        rule: "linear", for SGD, or "sqrt", for Adam and other optimizers that divide by the
            gradients' size.
        base_size: for how many ranks `lr` was chosen.
        passes: how many batches an update is the average of, on each rank:
            `backward_passes_per_step` with `average_aggregated_gradients=True`, or
            `gradient_accumulation_steps`.
        process_set: the ranks that train together.

    Returns:
        The learning rate.

    Raises:
        TypeError: if `lr` is no number, such as a schedule: scale the rates that it is made of.
        ValueError: for an unknown rule; for a `base_size` or `passes` below 1.
        NotInitializedError: before `init`.

    Example:
        >>> rate = hvd.scaled_lr(0.1)  # 0.4 on 4 ranks
        >>> rate = hvd.scaled_lr(1e-3, "sqrt")  # 2e-3 on 4 ranks
    """
    if rule not in _RULES:
        raise ValueError(f"Received: rule={rule!r}. Expected: one of {', '.join(_RULES)}.")
    if base_size < 1 or passes < 1:
        raise ValueError(f"Received: base_size={base_size}, passes={passes}. Expected: 1 or above.")
    try:
        rate = float(lr)
    except TypeError:
        raise TypeError(
            f"Received: lr of type {type(lr).__name__}. Expected: a number; of a schedule, scale "
            "the rates that it is made of."
        ) from None
    factor = process_set.size() * passes / base_size
    return rate * (factor if rule == "linear" else math.sqrt(factor))
