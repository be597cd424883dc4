"""By how much the ranks' clocks differ, from collectives that they have had together. Pure.

No rank has a result before every rank has brought its part. So each collective says of two ranks'
clocks that one is not further ahead than so much; many of them leave a small space between.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from tfhvd.profiling.trace import Trace


@dataclass(frozen=True)
class Offset:
    """What to add to a rank's times to have rank 0's.

    Attributes:
        seconds: the middle of what is possible.
        error: how far it may be from the truth, either way; infinite if nothing is known.
    """

    seconds: float
    error: float


def offsets(traces: Mapping[int, Trace]) -> dict[int, Offset]:
    """Finds the offset of each rank's clock to that of the first one.

    Ranks of one host have one clock.

    Args:
        traces: by rank.
    """
    first = traces[min(traces)]
    # Of the ranks of the first one's host: when the last has brought its part to a collective, and
    # when the first has had the result.
    known: dict[tuple[str, int], tuple[float, float]] = {}
    for trace in traces.values():
        for meeting in trace.meetings if trace.host == first.host else ():
            key = (meeting.name, meeting.turn)
            submitted, ended = known.get(key, (-math.inf, math.inf))
            known[key] = max(submitted, meeting.submitted), min(ended, meeting.ended)
    of_hosts: dict[str, list[float]] = {}
    for trace in traces.values():
        bounds = of_hosts.setdefault(trace.host, [-math.inf, math.inf])
        for meeting in trace.meetings:
            same = known.get((meeting.name, meeting.turn))
            if same is not None:
                bounds[0] = max(bounds[0], same[0] - meeting.ended)
                bounds[1] = min(bounds[1], same[1] - meeting.submitted)
    found = {}
    for rank, trace in traces.items():
        low, high = of_hosts[trace.host]
        if trace.host == first.host:
            found[rank] = Offset(0.0, 0.0)
        elif math.isinf(low) or math.isinf(high):
            found[rank] = Offset(0.0, math.inf)
        else:
            found[rank] = Offset((low + high) / 2, abs(high - low) / 2)
    return found
