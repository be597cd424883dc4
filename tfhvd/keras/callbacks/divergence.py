"""DivergenceCallback: how often `fit` compares the ranks' weights, and what it does then."""

from __future__ import annotations

from tfhvd.keras.callbacks.base import Callback
from tfhvd.replicas import ACTIONS


class DivergenceCallback(Callback):
    """Says how `fit` compares the ranks' weights, in place of the settings.

    Without this callback `fit` goes by TFHVD_DIVERGENCE_STEPS and TFHVD_ON_DIVERGENCE. The first
    rank's choice counts for all.

    Args:
        every: after so many steps the weights are compared, and an eighth of what else is equal on
            all ranks, such as the optimizer's state, each time the next eighth; 0: never.
        on_divergence: "warn"; "raise"; or "heal", which warns and gives all ranks the values of
            the most ranks, of two ranks those of the first.

    Raises:
        ValueError: for a negative number, or another `on_divergence`.

    Example:
        >>> model.fit(dataset, callbacks=[hvd.callbacks.DivergenceCallback(50, "raise")])
    """

    def __init__(self, every: int = 100, on_divergence: str = "warn") -> None:
        super().__init__()
        if every < 0 or on_divergence not in ACTIONS:
            raise ValueError(
                f"DivergenceCallback: received every={every}, on_divergence={on_divergence!r}. "
                f"Expected: a number of steps from 0 on, and one of {', '.join(ACTIONS)}."
            )
        self.every = every
        self.on_divergence = on_divergence
