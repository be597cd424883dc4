"""Whether a host's link to the others is slow, by what was sent over it in training. Pure.

A rank that is ready calls its collective when the others do, and all of them end together: when
they began and ended does not tell whose link they have waited for. How long the kernel had bytes
under way to whom does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tfhvd.profiling.link_speeds import Way, common_host, slow, uneven, usual_rate
from tfhvd.profiling.trace import Trace

_SLOWER = 3.0  # times than usual: what is sent in training varies more than a measurement
_LEAST_BYTES = 1 << 20  # over a way: a few small messages tell nothing of its speed
_LEAST_BUSY = 0.004  # seconds, in steps of which the kernel counts
_COSTS = 0.5  # of the communication, for which a slow way is busy


@dataclass(frozen=True)
class SlowLink:
    """Ways between hosts that are much slower than usual.

    Attributes:
        ways: these.
        usual: bytes per second of the others.
        host: the one whose link it is; None if it may be one of several.
    """

    ways: tuple[Way, ...]
    usual: float
    host: str | None

    @property
    def rate(self) -> float:
        """Bytes per second of the slowest."""
        return min(way.rate for way in self.ways)


def find(traces: Mapping[int, Trace], communication: float) -> SlowLink | None:
    """Finds the link that communication waits for; None if no link is sure to be slow.

    Args:
        traces: by rank; all of one job.
        communication: seconds that the ranks spend in it, in all steps.
    """
    ways = measured(traces)
    if not ways:
        return None
    usual = usual_rate(ways)
    found = slow(ways, _SLOWER, usual)
    if not found:
        one_way = uneven(ways, _SLOWER)
        found = [way for way, _ in one_way]
        usual = max((back.rate for _, back in one_way), default=usual)
    _, busy = _between_hosts(traces)
    if not any(busy[way.start, way.end] >= _COSTS * communication for way in found):
        return None
    return SlowLink(tuple(found), usual, common_host(found, ways))


def measured(traces: Mapping[int, Trace]) -> list[Way]:
    """How fast hosts have sent to each other, where enough was sent to tell."""
    sent, busy = _between_hosts(traces)
    return [
        Way(*ends, count / max(busy[ends], _LEAST_BUSY))
        for ends, count in sent.items()
        if count >= _LEAST_BYTES
    ]


def _between_hosts(
    traces: Mapping[int, Trace],
) -> tuple[dict[tuple[str, str], int], dict[tuple[str, str], float]]:
    """Bytes that each host has sent to each other one, and the longest that a connection was busy.

    Each connection is known by its ends, both of which are in a trace.
    """
    host_of = {each.own: trace.host for trace in traces.values() for each in trace.sent}
    count: dict[tuple[str, str], int] = {}
    busy: dict[tuple[str, str], float] = {}
    for trace in traces.values():
        for each in trace.sent:
            other = host_of.get(each.peer, trace.host)
            if other != trace.host:
                ends = (trace.host, other)
                count[ends] = count.get(ends, 0) + each.bytes
                busy[ends] = max(busy.get(ends, 0.0), each.busy)
    return count, busy
