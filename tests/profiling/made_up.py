"""Traces of jobs that never ran, of which every number is known."""

from __future__ import annotations

from tfhvd.profiling.intervals import Span
from tfhvd.profiling.trace import Meeting, Trace

STEP = 0.1


def job(late=(), ahead=0.0, hosts=("a", "a"), compiled=False, part="input", steps=5):
    """Steps of 100 ms: 10 of input, 60 of computing, a collective of 20, and the rest.

    `late`: rank -> how many seconds more it takes for `part`, or how many of each step; the others
    wait. `ahead`: by how much the last host's clock is.
    """
    extra = {
        rank: more if isinstance(more, list) else [more] * steps
        for rank, more in dict(late).items()
    }
    traces = {}
    for rank, host in enumerate(hosts):
        shift = ahead if host != hosts[0] else 0.0
        end = shift
        marks, spans, meetings = [], {"input": [], "computing": [], "collecting": []}, []
        for number in range(steps):
            begin = at = end
            more = extra[rank][number] if rank in extra else 0.0
            longest = max([0.0, *(each[number] for each in extra.values())])
            end = begin + STEP + longest
            for name, usual in (("input", 0.01), ("computing", 0.06)):
                duration = usual + (more if name == part else 0.0)
                spans[name].append(Span(at, at + duration))
                at += duration
            if part not in spans:
                at += more
            if compiled:  # one operation, which ends when the step's collective does
                spans["computing"][-1] = Span(spans["computing"][-1].begin, begin + longest + 0.091)
            everyone = begin + longest + 0.07
            meetings.append(
                Meeting("g", number, at, everyone, everyone + 0.001, everyone + 0.021, 4000, 3)
            )
            marks.append(Span(begin, end))
        traces[rank] = Trace(
            rank, host, tuple(marks), *map(tuple, spans.values()), tuple(meetings), compiled
        )
    return traces
