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
    """Returns the learning rate for the present number of ranks, from the rate for one rank.

    A step of n ranks uses n times as many samples. "linear" multiplies the rate by n, because n
    small steps of SGD move about as far as one step of n times the length (Goyal et al., 2017).
    "sqrt" multiplies the rate by the square root of n. The noise of an average over n times as many
    samples is smaller by this factor, and determines the length of the steps of Adam and similar
    optimizers (Malladi et al., 2022).

    Args:
        lr: the right learning rate for `base_size` ranks with the present batch size per rank.
        rule: "linear", for SGD, or "sqrt", for Adam and other optimizers that divide by the
            gradients' size.
        base_size: the number of ranks for which `lr` was chosen.
        passes: the number of batches in the average of an update, on each rank:
            `backward_passes_per_step` with `average_aggregated_gradients=True`, or
            `gradient_accumulation_steps`.
        process_set: the ranks that train together.

    Returns:
        The learning rate.

    Raises:
        TypeError: if `lr` is not a number, such as a schedule: scale the rates in it instead.
        ValueError: if the rule is unknown, or `base_size` or `passes` is below 1.
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
