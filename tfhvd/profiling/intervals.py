"""Spans of time, and sums of them. Pure."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Iterator
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
    past = 0  # of the cuts: those that end before this span
    found = []
    for span in merged(spans):
        begin = span.begin
        while past < len(cuts) and cuts[past].end <= begin:
            past += 1
        for cut in itertools.islice(cuts, past, None):
            if cut.begin >= span.end:
                break
            if cut.begin > begin:
                found.append(Span(begin, cut.begin))
            begin = cut.end
        if begin < span.end:
            found.append(Span(begin, span.end))
    return found


def in_each(spans: Iterable[Span], windows: Iterable[Span]) -> Iterator[list[Span]]:
    """The parts of spans that lie in each of some windows, laid together.

    Example:
        >>> list(in_each([Span(0, 5)], [Span(3, 9), Span(9, 12)]))
        [[Span(begin=3, end=5)], []]
    """
    whole = merged(spans)
    begins, ends = [span.begin for span in whole], [span.end for span in whole]
    for window in windows:
        first = bisect.bisect_right(ends, window.begin)
        last = bisect.bisect_left(begins, window.end)
        yield [
            Span(max(span.begin, window.begin), min(span.end, window.end))
            for span in whole[first:last]
        ]


def seconds(spans: Iterable[Span]) -> float:
    """How long spans are that do not overlap, all together.

    Example:
        >>> seconds([Span(0, 1), Span(3, 5)])
        3
    """
    return sum(span.end - span.begin for span in spans)
