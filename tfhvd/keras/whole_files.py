"""saved_whole: a model's file is complete at any time, either the old file or the new one.

Keras writes in place: a process that is killed while it saves leaves an unreadable file, and the
old file is gone.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfhvd.system import atomic_file

if TYPE_CHECKING:
    from tfhvd.compat.types import Model

_METHODS = ("save", "save_weights")
_KINDS = (".keras", ".h5")  # formats of one file; other formats are folders or several files


@contextlib.contextmanager
def saved_whole(model: Model) -> Iterator[None]:
    """Makes a model save to a temporary name in the same folder, and rename the file when complete.

    Args:
        model: of either Keras; its methods `save` and `save_weights` do this within the context.
    """
    own = vars(model)
    for name in _METHODS:
        own[name] = functools.partial(_save_whole, getattr(model, name))
    try:
        yield
    finally:
        for name in _METHODS:
            own.pop(name, None)


def _save_whole(save: Callable[..., Any], filepath: Any, *args: Any, **kwargs: Any) -> Any:
    name = os.fspath(filepath)
    path = Path(name)
    if "://" in name or path.suffix not in _KINDS or path.is_dir():
        return save(filepath, *args, **kwargs)
    with atomic_file.replacing(path) as unfinished:
        return save(str(unfinished), *args, **kwargs)
