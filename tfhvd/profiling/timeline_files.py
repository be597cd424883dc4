"""The timelines that ranks have written: laid together on one clock, and read as traces.

A file has events of Chrome's trace format, of one rank: see `cc/observe/timeline.h`. Pure, except
`read`.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tfhvd.profiling import clock_offsets, trace_events
from tfhvd.profiling.intervals import Span
from tfhvd.profiling.trace import Meeting, Trace

_RANK = re.compile(r"rank (\d+) on (.*)")
_WAITS = "NEGOTIATE_"
_QUEUES = "QUEUE"
_COPIES = "MEMCPY_"
_NEAR = 8  # collectives of one name that a rank may have recorded before another one began to

Event = dict[str, Any]


class TimelineError(ValueError):
    """A file that is no timeline, or files that do not belong together."""


@dataclass
class RankTimeline:
    """What one rank has recorded.

    Attributes:
        rank: its number.
        host: its name.
        since_epoch: what to add to times of this file to have seconds since 1970, by that host.
        events: as they are in the file.
    """

    rank: int
    host: str
    since_epoch: float
    events: list[Event] = field(default_factory=list)


def read(path: Path) -> RankTimeline:
    """Reads a file.

    Args:
        path: as `hvd.start_timeline` has made it, with `{rank}` in its name.

    Raises:
        TimelineError: if it is something else.
    """
    try:
        events = json.loads(path.read_text(encoding="utf-8"))
        first = events[0]
        named = _RANK.fullmatch(first["args"]["name"])
        epoch = first["args"]["start_time_since_epoch_in_micros"]
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no timeline of a rank"
        raise TimelineError(f"{path}: {why}") from error
    if named is None:
        raise TimelineError(f"{path}: it is no timeline of a rank")
    return RankTimeline(int(named[1]), named[2], 1e-6 * (epoch - first["ts"]), events)


def traces(files: Iterable[RankTimeline]) -> dict[int, Trace]:
    """Makes traces of what ranks of one job have recorded, with its steps.

    If all of them have profiled steps, the traces have these. Otherwise a step ends with a
    collective: the last one of the most frequent collectives. Times are in seconds since 1970, by
    the rank's own host.

    Args:
        files: of different ranks.

    Raises:
        TimelineError: for two files of one rank, or without a collective that all ranks had.
    """
    by_rank: dict[int, RankTimeline] = {}
    for file in files:
        if file.rank in by_rank:
            raise TimelineError(
                f"two files are of rank {file.rank}; give those of one recording, which "
                "hvd.start_timeline writes with {rank} in the name"
            )
        by_rank[file.rank] = file
    clock: dict[str, float] = {}  # one for each host
    meetings: dict[int, list[Meeting]] = {}
    profiled: dict[int, dict[str, Any]] = {}
    for rank in sorted(by_rank):
        file = by_rank[rank]
        shift = clock.setdefault(file.host, file.since_epoch)
        first = min(by_rank)
        one_clock = file.host == by_rank[first].host
        meetings[rank] = _aligned(_meetings(file, shift), meetings.get(first), one_clock)
        begin = file.events[0]
        profiled[rank] = trace_events.fields_in(
            file.events, begin["pid"], 1e-6 * begin["ts"], shift
        )
    common = set.intersection(*({(m.name, m.turn) for m in own} for own in meetings.values()))
    if not common:
        raise TimelineError("the files have no collective in common: are they of one recording?")
    anchor = _last_of_a_step(meetings[min(meetings)], common)
    made = {}
    for rank, own in meetings.items():
        about = profiled[rank]
        if not all(profiled.values()):
            steps = _steps(own, anchor, common)
            calls = _calls(by_rank[rank], clock[by_rank[rank].host], steps)
            about = {"steps": steps, "calls": calls, "only_collectives": True}
        kept = tuple(m for m in own if (m.name, m.turn) in common)
        made[rank] = Trace(rank=rank, host=by_rank[rank].host, meetings=kept, **about)
    return made


def merge(files: Iterable[RankTimeline]) -> tuple[list[Event], dict[int, clock_offsets.Offset]]:
    """Lays files together on the clock of the first rank's host.

    Args:
        files: of different ranks.

    Returns:
        The events of all, and for each rank what was added to its host's clock, in seconds. An
        error that is infinite says that nothing is known of it.

    Raises:
        TimelineError: for files that do not belong together.
    """
    files = sorted(files, key=lambda file: file.rank)
    offsets = clock_offsets.offsets(traces(files))
    clock: dict[str, float] = {}
    merged: list[Event] = []
    begin = files[0].since_epoch
    for file in files:
        offset = offsets[file.rank]
        shift = clock.setdefault(file.host, file.since_epoch) - begin + offset.seconds
        for number, event in enumerate(file.events):
            moved = {**event, "ts": round(event["ts"] + 1e6 * shift, 3)}
            if number and event["ph"] == "M" and event["name"] == "process_name":
                # The ranks have tensors of one name, and their tracks would have equal names.
                own = f"rank {file.rank} on {file.host}: {event['args']['name']}"
                moved["args"] = {**event["args"], "name": own}
            merged.append(moved)
            if number == 0:
                label = f"clock {1e3 * offset.seconds:+.3f} ms, to {1e3 * offset.error:.3f} ms"
                args = {"labels": label}
                merged.append({**moved, "name": "process_labels", "args": args})
    return merged, offsets


def _meetings(file: RankTimeline, shift: float) -> list[Meeting]:
    """The collectives of a file, in the order in which they ended; turns count from its begin."""
    names: dict[int, str] = {}
    open_: dict[tuple[int, int], dict[str, Any]] = {}
    found: list[dict[str, Any]] = []
    for event in file.events:
        place = (event["pid"], event["tid"])
        at = 1e-6 * event["ts"] + shift
        name = event.get("name", "")
        if event["ph"] == "M" and name == "process_name":
            names[event["pid"]] = event["args"]["name"]
        elif event["ph"] == "B" and name.startswith(_WAITS):
            one = {"name": names[event["pid"]], "called": at, "submitted": at, "depth": 1}
            open_[place] = one
        elif place not in open_:
            continue
        elif event["ph"] == "X" and name == str(file.rank) and "agreed" not in open_[place]:
            # The first rank's row begins when any rank was ready; the tick is its own.
            open_[place]["submitted"] = max(at, open_[place]["submitted"])
        elif event["ph"] == "B":
            one = open_[place]
            one["depth"] += 1
            if one["depth"] == 1:
                args = event.get("args", {})
                one["bytes"], one["tensors"] = args.get("bytes", 0), args.get("tensors", 1)
            elif name != _QUEUES:
                one.setdefault("began", at)
        elif event["ph"] == "E":
            one = open_[place]
            one["depth"] -= 1
            if "agreed" not in one:
                one["agreed"] = at
                # Ticks of a locked step are votes, which come after the call.
                if event.get("args", {}).get("locked"):
                    one["submitted"] = one["called"]
            elif one["depth"] == 0:
                one["ended"] = at
                found.append(open_.pop(place))
    found.sort(key=lambda one: one["ended"])
    turns: dict[str, int] = {}
    result = []
    for one in found:
        turn = turns[one["name"]] = turns.get(one["name"], -1) + 1
        began = one.get("began", one["agreed"])
        times = (one["submitted"], one["agreed"], began, one["ended"])
        result.append(Meeting(one["name"], turn, *times, one["bytes"], one["tensors"]))
    return result


def _calls(file: RankTimeline, shift: float, steps: tuple[Span, ...]) -> int:
    """How many calls have carried the collectives of these steps.

    One that carries several begins them one after the other, before it ends any.
    """
    phases: dict[tuple[int, int], list[str]] = {}
    found, is_new = 0, True
    for event in file.events:
        inner = phases.setdefault((event["pid"], event["tid"]), [])
        if event["ph"] == "B":
            inner.append(event["name"])
            if _is_call(inner):
                within = steps[0].begin <= 1e-6 * event["ts"] + shift <= steps[-1].end
                found += is_new and within
                is_new = False
        elif event["ph"] == "E" and inner:
            is_new = is_new or _is_call(inner)
            inner.pop()
    return found


def _is_call(phases: list[str]) -> bool:
    """Whether the innermost of these phases is what carries a collective."""
    return len(phases) == 2 and phases[1] != _QUEUES and not phases[1].startswith(_COPIES)


def _aligned(own: list[Meeting], first: list[Meeting] | None, one_clock: bool) -> list[Meeting]:
    """Counts turns as the first rank does, which may have begun to record earlier or later.

    If the numbers of turns do not show this, times do: on another host by its uncorrected clock.
    """
    if first is None:
        return own
    ends: dict[str, list[float]] = {}
    for meeting in first:
        ends.setdefault(meeting.name, []).append(meeting.ended)
    mine: dict[str, list[float]] = {}
    for meeting in own:
        mine.setdefault(meeting.name, []).append(meeting.ended)
    by: dict[str, int] = {}
    for name, times in mine.items():
        others = ends.get(name, [])
        by[name] = _best_shift(times, others) if one_clock or len(times) != len(others) else 0
    return [
        Meeting(m.name, m.turn + by[m.name], *_times(m), m.bytes, m.tensors)
        for m in own
        if m.turn + by[m.name] >= 0
    ]


def _best_shift(own: list[float], first: list[float]) -> int:
    """By how many turns one list is behind: so that what is of one turn ends at about one time."""

    def distance(shift: int) -> float:
        pairs = zip(own[max(0, -shift) :], first[max(0, shift) :])
        apart = [abs(a - b) for a, b in pairs]
        return statistics.median(apart) if apart else float("inf")

    return min(range(-_NEAR, _NEAR + 1), key=lambda shift: (distance(shift), abs(shift)))


def _times(meeting: Meeting) -> tuple[float, float, float, float]:
    return meeting.submitted, meeting.agreed, meeting.began, meeting.ended


def _last_of_a_step(first: list[Meeting], common: set[tuple[str, int]]) -> str:
    counts: dict[str, int] = {}
    for name, _ in common:
        counts[name] = counts.get(name, 0) + 1
    often = [m for m in first if counts.get(m.name) == max(counts.values())]
    turn = min(m.turn for m in often if (m.name, m.turn) in common)
    return max((m for m in often if m.turn == turn), key=lambda m: m.ended).name


def _steps(own: list[Meeting], anchor: str, common: set[tuple[str, int]]) -> tuple[Span, ...]:
    ends = [m.ended for m in own if m.name == anchor and (m.name, m.turn) in common]
    if len(ends) < 2:
        return (Span(min(m.submitted for m in own), max(m.ended for m in own)),)
    return tuple(Span(*pair) for pair in zip(ends, ends[1:]))
