"""The profiled steps of a rank as events of its timeline, which Perfetto shows. Pure.

They are in the rank's own row, each kind in a separate lane, in which no two overlap.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from tfhvd.profiling.intervals import Span, merged
from tfhvd.profiling.trace import Sent, Trace

Event = dict[str, Any]

_KINDS = {"steps": "step", "input": "input", "computing": "computing", "collecting": "garbage"}
_COUNTS = "tfhvd_profile"  # the name of the event that has what is no span
_LANE = 1  # of the first kind; the engine's events of this row are in lane 0


def events_of(trace: Trace, row: int) -> list[Event]:
    """Makes the events of a trace.

    Args:
        trace: of one profile; its collectives are in the file already.
        row: the number of the rank's own row.
    """
    place = {"pid": row, "tid": _LANE, "ts": _microseconds(trace.steps[0].begin)}
    counts = {
        "compiled": trace.compiled,
        "faults": trace.faults,
        "throttled": trace.throttled,
        "preempted": trace.preempted,
        "calls": trace.calls,
        "alone_bytes": trace.alone_bytes,
        "sent": [dataclasses.asdict(each) for each in trace.sent],
    }
    events: list[Event] = [{"ph": "M", "name": _COUNTS, **place, "args": counts}]
    for lane, (field, name) in enumerate(_KINDS.items(), _LANE):
        place["tid"] = lane
        events.append({"ph": "M", "name": "thread_name", **place, "args": {"name": name}})
        spans: tuple[Span, ...] = getattr(trace, field)
        for span in spans if field == "steps" else merged(spans):
            begin, end = map(_microseconds, span)
            at = {**place, "ts": begin, "dur": round(end - begin, 3)}
            events.append({"ph": "X", "name": name, **at})
    return events


def fields_in(events: Iterable[Event], row: int, since: float, shift: float) -> dict[str, Any]:
    """Reads what `events_of` has made: fields of a `Trace`, none if there are no such events.

    Args:
        events: of a timeline.
        row: the number of the rank's own row.
        since: when its recording began; steps before that have not all of their collectives in it.
        shift: what to add to times of the file.
    """
    spans: dict[str, list[Span]] = {name: [] for name in _KINDS.values()}
    counts: list[Mapping[str, Any]] = []
    for event in events:
        if event["pid"] != row:
            continue
        name = event.get("name", "")
        if event["ph"] == "M" and name == _COUNTS:
            counts.append(event["args"])
        elif event["ph"] == "X" and name in spans and event["ts"] >= 1e6 * since:
            begin = 1e-6 * event["ts"] + shift
            spans[name].append(Span(begin, begin + 1e-6 * event["dur"]))
    if not counts or not spans[_KINDS["steps"]]:
        return {}
    return {
        **{field: tuple(spans[name]) for field, name in _KINDS.items()},
        "compiled": any(each["compiled"] for each in counts),
        "faults": sum(each["faults"] for each in counts),
        "throttled": sum(each["throttled"] for each in counts),
        "preempted": sum(each["preempted"] for each in counts),
        "calls": sum(each["calls"] for each in counts),
        "alone_bytes": counts[-1]["alone_bytes"],
        "sent": tuple(Sent(**each) for some in counts for each in some["sent"]),
    }


def _microseconds(seconds: float) -> float:
    return round(1e6 * seconds, 3)
