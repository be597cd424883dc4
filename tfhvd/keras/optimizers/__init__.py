"""Optimizers for large batches, in addition to those of Keras."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfhvd.keras.optimizers.lars import LARS
else:  # A program with tf_keras only need not import Keras 3.

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{__name__}.{name.lower()}"), name)


__all__ = ["LARS"]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
