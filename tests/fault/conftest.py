"""What every test of this folder must leave as it was."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import shared_memory


@pytest.fixture(autouse=True)
def nothing_left_in_shared_memory() -> Iterator[None]:
    before = shared_memory.files()
    yield
    shared_memory.check_that_none_is_left(before)
