"""Models are saved to files that are whole: the old one or the new one, whenever the process ends.

Keras writes in place, so that a process that is killed meanwhile leaves a file that nobody can
read, and not the one before either.
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
_KINDS = (".keras", ".h5")  # of one file; others are folders, or several files of TensorFlow


@contextlib.contextmanager
def saved_whole(model: Model) -> Iterator[None]:
    """Lets a model save to another name, in the same folder, which then becomes the right one.

    Args:
        model: of either Keras; its methods `save` and `save_weights` do so within the context.
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
