"""progress_bars: chooses the ranks that show Keras' progress bars with `verbose="auto"`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfhvd.job import process
from tfhvd.keras.wrap.model_state import is_on_first_rank

if TYPE_CHECKING:
    from tfhvd.compat.types import Model

_FIRST, _ALL = "first", "all"
_shown_by = _FIRST


def progress_bars(ranks: str) -> None:
    """Chooses which ranks show the progress bars of `fit`, `evaluate` and `predict`.

    The choice holds for calls without a `verbose` argument: `verbose=1` shows a bar, and
    `verbose=0` shows none, on every rank that passes it.

    Args:
        ranks: "first" (the default) for the first of the ranks that train the model (rank 0, or the
            first of the optimizer's process set); "all" for all ranks.

    Raises:
        ValueError: if `ranks` is neither of these.

    Example:
        >>> hvd.progress_bars("all")
    """
    global _shown_by
    if ranks not in (_FIRST, _ALL):
        raise ValueError(f"Received: ranks={ranks!r}. Expected: {_FIRST!r} or {_ALL!r}.")
    _shown_by = ranks


def choose(model: Model, arguments: dict[str, Any]) -> None:
    """Switches the bar of a call off if another rank shows it.

    Args:
        model: of either Keras.
        arguments: the arguments of the method, by name.
    """
    if _shown_by == _ALL or arguments.get("verbose", "auto") != "auto":
        return
    if not is_on_first_rank(model):
        arguments["verbose"] = 0


def is_one_of_several(model: Model) -> bool:
    """Whether the job has other ranks, or may have some later."""
    return process.is_one_of_several()
