"""Checkpoints: the state of a training in a folder, whole or not there, whatever ends the job.

`store.py` is where to begin: what is on the disk. `manager.py` is what a program uses.

Example:
    >>> manager = hvd.checkpoint.Manager("run", keep=3)
    >>> step = manager.restore({"model": model}) or 0
    >>> manager.save(step + 100, {"model": model})
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tfhvd.checkpoint.errors import CheckpointError

if TYPE_CHECKING:
    from tfhvd.checkpoint.manager import Manager
else:  # `tfhvd checkpoint` reads folders without TensorFlow.

    def __getattr__(name: str) -> Any:
        if name != "Manager":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return importlib.import_module("tfhvd.checkpoint.manager").Manager


__all__ = ["CheckpointError", "Manager"]
