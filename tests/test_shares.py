"""Which tests are in a share of them."""

from __future__ import annotations

import pytest
from shares import Share

NAMES = [f"tests/test_a.py::test_{number}[case]" for number in range(300)]


def test_each_test_is_in_one_of_them():
    shares = [Share.parse(f"{number}/3") for number in (1, 2, 3)]
    for name in NAMES:
        assert sum(share.has(name) for share in shares) == 1
    assert all(60 < sum(map(share.has, NAMES)) < 140 for share in shares)


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "one/2"])
def test_what_is_no_share(text):
    with pytest.raises(ValueError):
        Share.parse(text)
