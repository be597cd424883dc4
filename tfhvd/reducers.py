"""Who reduces gradients in the training step under way, where no optimizer does: the tapes."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any

from tfhvd.gradients import GradientReducer

Seen = dict[tuple[Any, Any], GradientReducer]  # the last one of each name and process set

_seen: contextvars.ContextVar[Seen | None] = contextvars.ContextVar("seen", default=None)


@contextlib.contextmanager
def watched(seen: Seen) -> Iterator[None]:
    """Adds the reducers that are made inside to `seen`.

    Example:
        >>> seen: Seen = {}
        >>> with watched(seen):
        ...     tape = DistributedGradientTape(tf.GradientTape())
        >>> [reducer.options.name for reducer in seen.values()]
        ['DistributedGradientTape']
    """
    token = _seen.set(seen)
    try:
        yield
    finally:
        _seen.reset(token)


def note(reducer: GradientReducer) -> None:
    """Tells whoever watches the step under way."""
    seen = _seen.get()
    if seen is not None:
        options = reducer.options
        seen[options.name, options.process_set.process_set_id] = reducer
