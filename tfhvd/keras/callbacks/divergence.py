"""DivergenceCallback: sets how often `fit` compares the ranks' weights, and what follows."""

from __future__ import annotations

from tfhvd.keras.callbacks.base import Callback
from tfhvd.replicas import ACTIONS


class DivergenceCallback(Callback):
    """Chooses how `fit` compares the ranks' weights, and overrides the settings.

    Without this callback, TFHVD_DIVERGENCE_STEPS and TFHVD_ON_DIVERGENCE decide. The choice of the
    first rank counts for all ranks.

    Args:
        every: the number of steps between comparisons; 0 for no comparison. A comparison includes
            the weights and one eighth of the other state that is equal on all ranks, such as the
            optimizer's; the next comparison takes the next eighth.
        on_divergence: "warn"; "raise"; or "heal", which warns and gives all ranks the values that
            the most ranks have; with two ranks, the values of the first.

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
