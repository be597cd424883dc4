"""Of what a rank's steps consist: parts that come to the whole. Pure.

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

from collections.abc import Mapping
from dataclasses import dataclass, field

from tfhvd.profiling import clocks
from tfhvd.profiling.spans import Span, merged, seconds, within, without
from tfhvd.profiling.trace import Trace

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


def divide(traces: Mapping[int, Trace]) -> dict[int, list[Step]]:
    """Divides the steps of all ranks.

    Args:
        traces: by rank; all of one job.
    """
    shift = {rank: offset.seconds for rank, offset in clocks.offsets(traces).items()}
    last = _last_to_come(traces, shift)
    return {rank: _of_rank(trace, last, shift[rank]) for rank, trace in traces.items()}


def _last_to_come(
    traces: Mapping[int, Trace], shift: Mapping[int, float]
) -> dict[tuple[str, int], tuple[float, int]]:
    """Of each collective: when the last rank called it, by the first rank's clock, and which."""
    last: dict[tuple[str, int], tuple[float, int]] = {}
    for rank, trace in traces.items():
        for meeting in trace.meetings:
            key = (meeting.name, meeting.turn)
            last[key] = max(
                last.get(key, (float("-inf"), rank)), (meeting.submitted + shift[rank], rank)
            )
    return last


def _of_rank(
    trace: Trace, last: Mapping[tuple[str, int], tuple[float, int]], shift: float
) -> list[Step]:
    waiting: dict[int, list[Span]] = {}
    overhead, communication = [], []
    for meeting in trace.meetings:
        at, rank = last[meeting.name, meeting.turn]
        everyone = min(max(at - shift, meeting.submitted), meeting.began)
        if rank != trace.rank:
            waiting.setdefault(rank, []).append(Span(meeting.submitted, everyone))
            overhead.append(Span(everyone, meeting.began))
        else:
            overhead.append(Span(meeting.submitted, meeting.began))
        communication.append(Span(meeting.began, meeting.ended))
    computing = _computing(trace)
    return [
        _divide(step, trace, computing, waiting, overhead, communication) for step in trace.steps
    ]


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
        calls = [at for at in submitted if span.begin <= at <= span.end]
        found.append(Span(span.begin, calls[-1] if calls else span.end))
    return merged(found)


def _divide(
    step: Span,
    trace: Trace,
    computing: list[Span],
    waiting: Mapping[int, list[Span]],
    overhead: list[Span],
    communication: list[Span],
) -> Step:
    parts: dict[str, float] = {}
    taken: list[Span] = []

    def take(spans: list[Span]) -> float:
        nonlocal taken
        own = without(within(spans, step), taken)
        taken = merged([*taken, *own])
        return seconds(own)

    parts["input"] = take(list(trace.input))
    parts["garbage"] = take(without(trace.collecting, computing))
    parts["computing"] = take(computing)
    waits_for = {rank: take(spans) for rank, spans in sorted(waiting.items())}
    parts["waiting"] = sum(waits_for.values())
    parts["overhead"] = take(overhead)
    parts["communication"] = take(communication)
    whole = step.end - step.begin
    parts["other"] = max(0.0, whole - seconds(taken))
    return Step(whole, parts, {rank: part for rank, part in waits_for.items() if part > 0})
