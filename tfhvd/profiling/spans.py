"""Spans of time, and sums of them. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Span(NamedTuple):
    """From `begin` to `end`, in seconds of one clock."""

    begin: float
    end: float


def merged(spans: Iterable[Span]) -> list[Span]:
    """Lays together what overlaps; leaves out what is empty. In order.

    Example:
        >>> merged([Span(3, 4), Span(0, 2), Span(1, 2.5)])
        [Span(begin=0, end=2.5), Span(begin=3, end=4)]
    """
    found: list[Span] = []
    for span in sorted(span for span in spans if span.end > span.begin):
        if found and span.begin <= found[-1].end:
            found[-1] = Span(found[-1].begin, max(found[-1].end, span.end))
        else:
            found.append(span)
    return found


def without(spans: Iterable[Span], others: Iterable[Span]) -> list[Span]:
    """What is in some span and in none of the others.

    Example:
        >>> without([Span(0, 5)], [Span(1, 2), Span(4, 9)])
        [Span(begin=0, end=1), Span(begin=2, end=4)]
    """
    cuts = merged(others)
    found = []
    for span in merged(spans):
        begin = span.begin
        for cut in cuts:
            if cut.end <= begin or cut.begin >= span.end:
                continue
            if cut.begin > begin:
                found.append(Span(begin, cut.begin))
            begin = max(begin, cut.end)
        if begin < span.end:
            found.append(Span(begin, span.end))
    return found


def within(spans: Iterable[Span], window: Span) -> list[Span]:
    """The parts of spans that lie in a window, laid together.

    Example:
        >>> within([Span(0, 5)], Span(3, 9))
        [Span(begin=3, end=5)]
    """
    cut = (Span(max(s.begin, window.begin), min(s.end, window.end)) for s in spans)
    return merged(cut)


def seconds(spans: Iterable[Span]) -> float:
    """How long spans are that do not overlap, all together.

    Example:
        >>> seconds([Span(0, 1), Span(3, 5)])
        3
    """
    return sum(span.end - span.begin for span in spans)
