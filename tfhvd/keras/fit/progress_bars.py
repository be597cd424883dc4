"""Which ranks show Keras' progress bars where a program does not say."""

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

    It decides where a call says nothing else: `verbose=1` shows a bar, and `verbose=0` none, on
    every rank that says so.

    Args:
        ranks: "first" for the first of those that train the model (rank 0, or the first of the
            optimizer's process set), as it is unless this is called; "all" for every one.

    Raises:
        ValueError: for another word.

    Example:
        >>> hvd.progress_bars("all")
    """
    global _shown_by
    if ranks not in (_FIRST, _ALL):
        raise ValueError(f"Received: ranks={ranks!r}. Expected: {_FIRST!r} or {_ALL!r}.")
    _shown_by = ranks


def choose(model: Model, arguments: dict[str, Any]) -> None:
    """Says no to the bar of a call on this rank, where it is another's to show it.

    Args:
        model: of either Keras.
        arguments: those that the method was given, by name.
    """
    if _shown_by == _ALL or arguments.get("verbose", "auto") != "auto":
        return
    if not is_on_first_rank(model):
        arguments["verbose"] = 0


def is_one_of_several(model: Model) -> bool:
    """Whether this process has other ranks beside it, or may have them later."""
    return process.is_one_of_several()
