"""Numbers of ranks in words."""

from __future__ import annotations

from tfhvd.system.formatting import ranks_text


def test_ranks_in_words():
    assert ranks_text([3]) == "rank 3"
    assert ranks_text([5, 0, 1, 2]) == "ranks 0-2, 5"
    assert ranks_text(range(0, 20, 2)) == "ranks 0, 2, 4, 6, 8, 10 and 4 more"
