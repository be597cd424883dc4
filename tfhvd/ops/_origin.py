"""Where in the user's program a collective comes from: for what people read of a job that hangs."""

from __future__ import annotations

import functools
import sys
import sysconfig
from pathlib import Path
from types import FrameType

from tfhvd.compat import graphs

_LIMIT = 300  # characters of a file's name, the last ones
_PACKAGES = ("tfhvd", "tensorflow", "keras", "tf_keras")


def origin(variable: str = "") -> str:
    """Names the innermost line of the program that is neither TensorFlow's, Keras' nor tfhvd's.

    Args:
        variable: whose gradient it is; it is named, too.

    Returns:
        Such as "/home/ann/train.py:42 in train_step, for dense/kernel"; "" if there is neither.
    """
    line = _line()
    return ", ".join(filter(None, (line, f"for {variable}" if variable else "")))


def _line() -> str:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if graphs.is_converted(file):
            return _of_converted()
        if _is_users(file):
            return _text(file, frame.f_lineno, frame.f_code.co_name)
        frame = frame.f_back
    return ""


def _of_converted() -> str:
    """The same, where AutoGraph has rewritten the function: TensorFlow knows the user's lines."""
    for file, line, function in graphs.lines_inside_out():
        if _is_users(file):
            return _text(file, line, function)
    return ""


def _text(file: str, line: int, function: str) -> str:
    return f"{file[-_LIMIT:]}:{line} in {function}"


@functools.lru_cache(maxsize=4096)
def _is_users(file: str) -> bool:
    if file.startswith("<frozen ") or graphs.is_converted(file):
        return False
    return not file.startswith(_libraries_in(tuple(name in sys.modules for name in _PACKAGES)))


@functools.lru_cache(maxsize=16)
def _libraries_in(imported: tuple[bool, ...]) -> tuple[str, ...]:
    """The folders whose lines are not the user's; `imported`: which of the packages there are."""
    paths = sysconfig.get_paths()
    library = Path(paths["stdlib"])
    folders = {str(path) for path in library.iterdir() if path.name not in _SITES}
    for name, is_imported in zip(_PACKAGES, imported):
        file = sys.modules[name].__file__ if is_imported else None
        if file is not None:
            folders.add(f"{Path(file).parent}/")
    return tuple(folders)


_SITES = ("site-packages", "dist-packages")
