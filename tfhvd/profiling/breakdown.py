"""The parts of a rank's steps, which add up to the whole. Pure.

Each moment of a step belongs to one part, the first of these that it is in:

| part | while |
|---|---|
| input | the step waits for its data |
| garbage | Python looks for garbage, and nothing is computed |
| computing | an operation is computed |
| waiting | no operation is, and a collective waits for a rank that has not called it |
| overhead | ... all ranks have called it, and it has not begun |
| communication | ... it is carried out |
| other | none of all this: the program itself |
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tfhvd.profiling import clock_offsets
from tfhvd.profiling.intervals import Span, in_each, merged, without
from tfhvd.profiling.trace import Meeting, Trace

PARTS = ("input", "garbage", "computing", "waiting", "overhead", "communication", "other")


@dataclass(frozen=True)
class Step:
    """The parts of one step of one rank, in seconds; they come to `whole`.

    Attributes:
        whole: how long the step took.
        parts: by name.
        waits_for: of the part "waiting", by the rank that came last.
    """

    whole: float
    parts: dict[str, float]
    waits_for: dict[int, float] = field(default_factory=dict)


class Moment(NamedTuple):
    """A span of a step, which belongs to one part.

    Attributes:
        part: which.
        span: by the rank's own clock.
        waits_for: the rank that came last, in "waiting".
    """

    part: str
    span: Span
    waits_for: int | None = None


class Gathering(NamedTuple):
    """A collective of a rank, and when the ranks were together.

    Attributes:
        meeting: what the rank has recorded of it.
        complete: when the last rank called it, by this one's clock.
        last: that rank.
    """

    meeting: Meeting
    complete: float
    last: int


def divide(traces: Mapping[int, Trace]) -> dict[int, list[Step]]:
    """Divides the steps of all ranks.

    Args:
        traces: by rank; all of one job.
    """
    gathered = gatherings(traces)
    return {
        rank: [_step(*each) for each in zip(trace.steps, moments(trace, gathered[rank]))]
        for rank, trace in traces.items()
    }


def gatherings(traces: Mapping[int, Trace]) -> dict[int, list[Gathering]]:
    """Finds for each rank's collectives which rank called them last, and when."""
    shift = {rank: offset.seconds for rank, offset in clock_offsets.offsets(traces).items()}
    last: dict[tuple[str, int], tuple[float, int]] = {}  # by the first rank's clock
    for rank, trace in traces.items():
        for meeting in trace.meetings:
            key = (meeting.name, meeting.turn)
            last[key] = max(
                last.get(key, (float("-inf"), rank)), (meeting.submitted + shift[rank], rank)
            )
    found: dict[int, list[Gathering]] = {}
    for rank, trace in traces.items():
        own = found[rank] = []
        for meeting in trace.meetings:
            at, who = last[meeting.name, meeting.turn]
            complete = min(max(at - shift[rank], meeting.submitted), meeting.began)
            own.append(Gathering(meeting, meeting.submitted if who == rank else complete, who))
    return found


def moments(trace: Trace, gathered: Iterable[Gathering]) -> Iterator[list[Moment]]:
    """Divides each step of a rank into moments; what they leave of a step is "other".

    Args:
        trace: of the rank.
        gathered: its collectives.
    """
    waiting: dict[int, list[Span]] = {}
    overhead, communication = [], []
    for meeting, complete, last in gathered:
        waiting.setdefault(last, []).append(Span(meeting.submitted, complete))
        overhead.append(Span(complete, meeting.began))
        communication.append(Span(meeting.began, meeting.ended))
    computing = _computing(trace)
    kinds: list[tuple[str, int | None, Iterable[Span]]] = [
        ("input", None, trace.input),
        ("garbage", None, without(trace.collecting, computing)),
        ("computing", None, computing),
        *(("waiting", rank, spans) for rank, spans in sorted(waiting.items())),
        ("overhead", None, overhead),
        ("communication", None, communication),
    ]
    for in_step in zip(*(in_each(spans, trace.steps) for _, _, spans in kinds)):
        taken: list[Span] = []
        found = []
        for (part, rank, _), spans in zip(kinds, in_step):
            own = without(spans, taken)
            taken = merged([*taken, *own])
            found += [Moment(part, span, rank) for span in own]
        yield found


def _computing(trace: Trace) -> list[Span]:
    """While an operation is computed.

    A compiled step is one operation, at the end of which it waits: it computes until it has begun
    its last collective.
    """
    if not trace.compiled:
        return merged(trace.computing)
    submitted = sorted(meeting.submitted for meeting in trace.meetings)
    found = []
    for span in trace.computing:
        before = bisect.bisect_right(submitted, span.end)
        last = submitted[before - 1] if before else span.begin - 1
        found.append(Span(span.begin, last if last >= span.begin else span.end))
    return merged(found)


def _step(span: Span, own: Iterable[Moment]) -> Step:
    parts = dict.fromkeys(PARTS, 0.0)
    waits_for: dict[int, float] = {}
    for moment in own:
        takes = moment.span.end - moment.span.begin
        parts[moment.part] += takes
        if moment.waits_for is not None:
            waits_for[moment.waits_for] = waits_for.get(moment.waits_for, 0.0) + takes
    whole = span.end - span.begin
    parts["other"] = max(0.0, whole - sum(parts.values()))
    return Step(whole, parts, waits_for)
