"""The numbers of ranks, in words."""

from __future__ import annotations

from collections.abc import Iterable

_MOST = 6  # numbers and spans of numbers in a text


def ranks_text(ranks: Iterable[int]) -> str:
    """Returns the numbers of ranks as text; if there are many, only the first few.

    Example:
        >>> ranks_text([0, 1, 2, 5])
        'ranks 0-2, 5'
    """
    spans: list[list[int]] = []
    for rank in sorted(ranks):
        if spans and spans[-1][-1] == rank - 1:
            spans[-1].append(rank)
        else:
            spans.append([rank])
    texts = [f"{span[0]}-{span[-1]}" if len(span) > 1 else str(span[0]) for span in spans]
    more = sum(map(len, spans[_MOST:]))
    one = len(spans) == 1 and len(spans[0]) == 1
    named = ", ".join(texts[:_MOST]) + (f" and {more} more" if more else "")
    return f"{'rank' if one else 'ranks'} {named}"
