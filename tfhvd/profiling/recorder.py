"""Records some steps of this rank."""

from __future__ import annotations

import collections
import functools
import gc
import resource
import time
from collections.abc import Iterable
from typing import Any

from tfhvd.compat.profiler import Profiler
from tfhvd.hang import flight_record
from tfhvd.profiling import tcp_stats
from tfhvd.profiling.intervals import Span, without
from tfhvd.profiling.trace import Meeting, Trace
from tfhvd.profiling.trace_events import events_of
from tfhvd.runtime.membership import membership
from tfhvd.runtime.native import load_native
from tfhvd.system import cgroups, cpu_steal
from tfhvd.telemetry.metrics import metrics
from tfhvd.telemetry.timeline_file import timeline_file


class Recorder:
    """From `start` to `stop`, with `step` between two steps. One at a time.

    The recorded steps are also in the rank's timeline, if there is one.
    """

    def __init__(self) -> None:
        self._profiler = Profiler()
        self._record = load_native().flight_record()
        self._marks: list[float] = []
        self._meetings: dict[int, flight_record.Collective] = {}
        self._collecting: list[Span] = []
        self._collects_since = 0.0
        self._faults = resource.getrusage(resource.RUSAGE_SELF).ru_majflt
        self._throttled = cgroups.throttled_seconds()
        self._preempted = cpu_steal.seconds()
        self._calls = metrics().calls
        self._sent = tcp_stats.read()
        self._first = flight_record.read(self._record).submitted + 1
        gc.callbacks.append(self._on_collect)
        self.step()

    def step(self) -> None:
        """Notes that a step is over, and that the next one begins."""
        self._marks.append(self._profiler.mark())
        for collective in flight_record.read(self._record).collectives:
            if collective.number >= self._first and collective.ended is not None:
                self._meetings[collective.number] = collective

    def stop(self) -> Trace:
        """Ends it."""
        gc.callbacks.remove(self._on_collect)
        preempted = cpu_steal.seconds() - self._preempted
        calls, sent = metrics().calls - self._calls, tcp_stats.since(self._sent)
        events = self._profiler.stop()
        topology = membership.require_topology()
        turns: collections.Counter[str] = collections.Counter()
        meetings = []
        for _, one in sorted(self._meetings.items()):
            if one.failed or one.ended is None:
                continue
            agreed = one.submitted if one.agreed is None else one.agreed
            began = agreed if one.began is None else one.began
            turn, turns[one.name] = turns[one.name], turns[one.name] + 1
            times = (one.submitted, agreed, began, one.ended)
            meetings.append(Meeting(one.name, turn, *times, one.bytes, one.tensors))
        compiled = without(_spans(events.steps), _spans(events.ours))
        trace = Trace(
            rank=topology.rank,
            host=topology.hosts[topology.rank],
            steps=tuple(Span(*pair) for pair in zip(self._marks, self._marks[1:])),
            input=tuple(_spans(events.input)),
            computing=(*_spans(events.computing), *compiled),
            collecting=tuple(self._collecting),
            meetings=tuple(meetings),
            compiled=events.compiled,
            faults=resource.getrusage(resource.RUSAGE_SELF).ru_majflt - self._faults,
            throttled=cgroups.throttled_seconds() - self._throttled,
            preempted=preempted,
            calls=calls,
            alone_bytes=load_native().config().alone_bytes,
            sent=sent,
        )
        if trace.steps:
            make = functools.partial(events_of, trace)
            timeline_file.add(make, membership.generation())
        return trace

    def _on_collect(self, phase: str, info: dict[str, Any]) -> None:
        del info
        if phase == "start":
            self._collects_since = time.monotonic()
        elif self._collects_since:
            self._collecting.append(Span(self._collects_since, time.monotonic()))


def _spans(pairs: Iterable[tuple[float, float]]) -> list[Span]:
    return [Span(*pair) for pair in pairs]
