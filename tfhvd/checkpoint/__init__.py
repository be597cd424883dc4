"""Checkpoints: the state of a training in a folder, complete or absent, whatever ends the job.

Begin with `store.py`, which describes the files on the disk. Programs use `manager.py`.

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
else:  # `tfhvd checkpoint` reads folders without TensorFlow

    def __getattr__(name: str) -> Any:
        if name != "Manager":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return importlib.import_module("tfhvd.checkpoint.manager").Manager


__all__ = ["CheckpointError", "Manager"]
