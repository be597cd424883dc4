"""The values that a report's page shows, as JSON can hold them. Pure.

Pages stay of a size that a browser can draw: of many ranks some are left out, and of many steps
averages of neighbours are shown, and the collectives of some. The page says so then.
"""

from __future__ import annotations

import bisect
import dataclasses
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tfhvd.profiling import clock_offsets, slow_links, straggler
from tfhvd.profiling.breakdown import PARTS, Gathering, gatherings, moments
from tfhvd.profiling.intervals import Span
from tfhvd.profiling.report import Report
from tfhvd.profiling.trace import Trace

RANKS = 32  # that are shown
COLUMNS = 200  # of steps, each the average of some
EVENTS = 60_000  # moments and collectives of all ranks

_NOTICEABLE = 0.02  # of a step

# By part: what takes a step's time, as a sentence begins; and while what it is so.
_SAYS = {
    "input": ("Waiting for input", "the step waits for its data"),
    "garbage": ("Python's garbage collector", "Python looks for garbage, and nothing is computed"),
    "computing": ("Computing", "an operation is computed"),
    "waiting": (
        "Waiting for other ranks",
        "no operation is computed, and a collective waits for a rank that has not called it",
    ),
    "overhead": ("Overhead", "all ranks have called a collective, and it has not begun"),
    "communication": (
        "Communication",
        "a collective is carried out, and no operation is computed that would hide it",
    ),
    "other": ("What is between operations", "none of all this: Python, callbacks, TensorFlow"),
}
_UNSEEN = "all else, of which a timeline without a profile knows nothing"

Fields = dict[str, Any]


def headline(report: Report) -> str:
    """Says in one sentence which part or rank takes the time."""
    found = report.straggler
    if found is not None and found.cause == "link" and report.link is not None:
        return f"The link of host {report.link.host} is slow: it costs {found.share:.0%} of a step."
    if found is not None:
        return (
            f"Rank {found.rank} is the slowest: the others wait {found.share:.0%} of a step for it."
        )
    advice = report.advice()
    if advice:
        return advice[0]
    part, seconds = max(_averages(report).items(), key=lambda each: each[1])
    share = seconds / (_whole(report) or 1.0)
    slow = "No rank keeps the others: " if len(report.steps) > 1 else ""
    text = f"{_SAYS[part][0]} takes {share:.0%} of a step."
    return slow + (text[0].lower() + text[1:] if slow else text)


def fields_of(report: Report) -> Fields:
    """Makes what the page shows.

    Args:
        report: with its traces. Times become microseconds of the first rank's clock, since the
            begin of its first step.

    Returns:
        What JSON can hold.
    """
    waits = _waits(report)
    keeps = {rank: _keeps(rank, waits) for rank in waits}
    averages = {
        part: {rank: report.seconds(rank, part) for rank in report.steps}
        for part in report.parts()
        if part in straggler.OWN
    }
    ranks = _shown(report, keeps)
    count = max(map(len, report.steps.values()), default=0)
    size = max(1, math.ceil(count / COLUMNS))
    numbers = _kept_steps(report, ranks, size)
    first = report.traces[min(report.traces)]
    begin = first.steps[0].begin if first.steps else 0.0
    shifts = clock_offsets.offsets(report.traces)
    gathered = gatherings(report.traces)
    names: dict[str, int] = {}
    over_time = [
        _over_time(
            report.traces[rank], gathered[rank], numbers, shifts[rank].seconds - begin, names
        )
        for rank in ranks
    ]
    error = report.clock_error
    return {
        "steps": count,
        "all_ranks": len(report.steps),
        "parts": [
            [part, _UNSEEN if report.only_collectives and part == "other" else _SAYS[part][1]]
            for part in report.parts()
        ],
        "only_collectives": report.only_collectives,
        "ranks": [
            {**_of_rank(report, rank), "keeps": keeps[rank], "more": _more(report, rank, averages)}
            for rank in ranks
        ],
        "waits": [[waits[rank].get(other, 0.0) for other in ranks] for rank in ranks],
        "links": _links(report),
        "column": size,
        "columns": [_columns(report, rank, size) for rank in ranks],
        "kept": [[n, *_microseconds(first.steps[n], -begin)] for n in numbers],
        "names": list(names),
        "over_time": over_time,
        "clock_error": None if math.isinf(error) else 1e6 * error,
    }


def _whole(report: Report) -> float:
    return statistics.fmean(report.seconds(rank, "whole") for rank in report.steps)


def _averages(report: Report) -> dict[str, float]:
    """By part the seconds that it takes of a step, on average of all ranks."""
    return {
        part: statistics.fmean(report.seconds(rank, part) for rank in report.steps)
        for part in report.parts()
    }


def _waits(report: Report) -> dict[int, dict[int, float]]:
    """Seconds a step for which each rank waits for each other one."""
    found: dict[int, dict[int, float]] = {}
    for rank, steps in report.steps.items():
        own = found[rank] = {}
        for step in steps:
            for other, seconds in step.waits_for.items():
                own[other] = own.get(other, 0.0) + seconds / len(steps)
    return found


def _keeps(rank: int, waits: Mapping[int, Mapping[int, float]]) -> float:
    """Seconds a step for which the others wait for a rank, each, on average."""
    others = [own.get(rank, 0.0) for other, own in waits.items() if other != rank]
    return statistics.fmean(others) if others else 0.0


def _shown(report: Report, keeps: Mapping[int, float]) -> list[int]:
    """The ranks that the others wait for longest, if there are too many."""
    found = report.straggler  # with a slow link it may be a rank that no rank waits for
    first = None if found is None else found.rank
    return sorted(sorted(keeps, key=lambda rank: (rank != first, -keeps[rank], rank))[:RANKS])


def _of_rank(report: Report, rank: int) -> Fields:
    return {
        "rank": rank,
        "host": report.traces[rank].host,
        "whole": report.seconds(rank, "whole"),
        "parts": [report.seconds(rank, part) for part in report.parts()],
    }


def _more(
    report: Report, rank: int, averages: Mapping[str, Mapping[int, float]]
) -> list[list[str | float]]:
    """The parts that take a rank noticeably longer than the other ones, and seconds; most first."""
    found = []
    for part, of_ranks in averages.items():
        others = [seconds for other, seconds in of_ranks.items() if other != rank]
        more = of_ranks[rank] - statistics.median(others) if others else 0.0
        if more > _NOTICEABLE * report.seconds(rank, "whole"):
            found.append((part, more))
    return [[part, more] for part, more in sorted(found, key=lambda each: -each[1])]


def _columns(report: Report, rank: int, size: int) -> list[list[float]]:
    """Of each so many steps: the average of each part, and the longest step."""
    steps = report.steps[rank]
    found = []
    for at in range(0, len(steps), size):
        some = steps[at : at + size]
        averages = [statistics.fmean(step.parts[part] for step in some) for part in report.parts()]
        found.append([_short(1e6 * each) for each in (*averages, max(s.whole for s in some))])
    return found


def _links(report: Report) -> list[Fields]:
    """Links between hosts, the slowest first."""
    slow = {(way.start, way.end) for way in report.link.ways} if report.link else set()
    ways = sorted(slow_links.measured(report.traces), key=lambda way: way.rate)
    return [
        {"from": w.start, "to": w.end, "rate": w.rate, "slow": (w.start, w.end) in slow}
        for w in ways
    ]


def _kept_steps(report: Report, ranks: Sequence[int], size: int) -> list[int]:
    """The steps that are shown with each collective: the longest of each column.

    If there is no room for all of these, the longest one is shown, and some of every time.

    Args:
        report: of all ranks.
        ranks: that are shown.
        size: steps of a column.
    """
    count = min(len(report.steps[rank]) for rank in ranks)
    longest = [max(report.steps[rank][n].whole for rank in ranks) for n in range(count)]
    found = [
        max(range(at, min(at + size, count)), key=lambda n: longest[n])
        for at in range(0, count, size)
    ]
    events = sum(  # a collective has a moment of waiting, one of overhead and one of communication
        4 * len(trace.meetings) + len(trace.input) + len(trace.computing) + len(trace.collecting)
        for trace in (report.traces[rank] for rank in ranks)
    )
    room = max(1, int(EVENTS * count / max(1, events)))
    if room >= len(found):
        return found
    evenly = {found[number * len(found) // room] for number in range(room)}
    return sorted(evenly | {max(found, key=lambda n: longest[n])})


def _over_time(
    trace: Trace,
    gathered: Iterable[Gathering],
    numbers: Sequence[int],
    shift: float,
    names: dict[str, int],
) -> Mapping[str, list[list[float]]]:
    """The moments and collectives of a rank in some steps, in order.

    Args:
        trace: of the rank.
        gathered: its collectives.
        numbers: of the steps.
        shift: seconds to add to times of the rank.
        names: of collectives, by their number; those that are new are added.
    """
    spans = []
    kept = dataclasses.replace(trace, steps=tuple(trace.steps[number] for number in numbers))
    gathered = sorted(gathered, key=lambda each: each.meeting.submitted)
    for of_step in moments(kept, gathered):
        for moment in sorted(of_step, key=lambda each: each.span):
            begin, end = _microseconds(moment.span, shift)
            who = -1 if moment.waits_for is None else moment.waits_for
            if end > begin:
                spans.append([begin, end, PARTS.index(moment.part), who])
    chosen = set(numbers)
    ends = [span.end for span in trace.steps]
    collectives = []
    for meeting, complete, last in gathered:
        if bisect.bisect_left(ends, meeting.ended) in chosen:
            times = (meeting.submitted, complete, meeting.began, meeting.ended)
            name = names.setdefault(meeting.name, len(names))
            micros = (_short(1e6 * (at + shift)) for at in times)
            collectives.append([name, *micros, last, meeting.bytes, meeting.tensors])
    return {"moments": spans, "collectives": collectives}


def _microseconds(span: Span, shift: float) -> tuple[float, float]:
    return _short(1e6 * (span.begin + shift)), _short(1e6 * (span.end + shift))


def _short(number: float) -> float:
    """To a tenth, and with few characters."""
    found = round(number, 1)
    return int(found) if found.is_integer() else found
