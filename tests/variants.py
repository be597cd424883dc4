"""Marks the cases of a test that show once more what another one of its cases shows.

    @pytest.mark.parametrize("package", ["keras", also("tf_keras")])

`pytest` runs the first, and `pytest -m ""` both: see pyproject.toml. The mark `variant` is for
matrix.py, which runs both on two ranks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def also(*values: Any, marks: Collection[pytest.MarkDecorator] = (), **options: Any) -> Any:
    """A case as `pytest.param` takes it, which is `thorough`."""
    marks = [*marks, pytest.mark.thorough, pytest.mark.variant]
    return pytest.param(*values, marks=marks, **options)


def first_of(values: Iterable[Any], count: int = 1) -> list[Any]:
    """Cases without marks of their own, as a list: the others than the first few are `thorough`."""
    return [value if at < count else also(value) for at, value in enumerate(values)]
