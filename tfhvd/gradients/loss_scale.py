"""Whether gradients are reduced for a loss scale, which makes some infinite on purpose."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator

_looks = contextvars.ContextVar("loss_scale_looks", default=False)


@contextlib.contextmanager
def looks_itself() -> Iterator[None]:
    """Is around what reduces gradients for a loss scale: it leaves out what is not finite then."""
    before = _looks.set(True)
    try:
        yield
    finally:
        _looks.reset(before)


def looks() -> bool:
    """Whether a loss scale looks for what is not finite in the gradients that are reduced."""
    return _looks.get()
