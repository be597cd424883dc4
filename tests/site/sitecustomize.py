"""What every Python of the tests runs first: Keras does without what it would only try to import.

`import tensorflow` imports Keras, and that imports scikit-learn and Matplotlib where they are
installed, as they are for the tests: 3 of 6 seconds of a processor for each of hundreds of ranks.
Users have neither unless they install them. Who else imports them gets them.

children.py puts this folder into PYTHONPATH, and conftest.py runs this for the tests themselves.
"""

from __future__ import annotations

import importlib.abc
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

_WANTED = ("matplotlib", "sklearn")


class _NotForKeras(importlib.abc.MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name in _WANTED and _importer().partition(".")[0] in ("keras", "tf_keras"):
            raise ModuleNotFoundError(f"{name} is kept from Keras: see {__file__}", name=name)
        return None


def _importer() -> str:
    """The name of the module that imports: the innermost one that is not of the import itself."""
    frame = sys._getframe(2)
    while frame is not None and "importlib" in frame.f_globals.get("__name__", ""):
        frame = frame.f_back
    return "" if frame is None else frame.f_globals.get("__name__", "")


sys.meta_path.insert(0, _NotForKeras())
