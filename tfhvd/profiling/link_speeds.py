"""How fast hosts send to each other, and which of them has a slow link. Pure.

Measured by `tfhvd doctor`, or counted by the kernel in training.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Way:
    """One direction of a link between hosts.

    Attributes:
        start: the host that sends.
        end: the host that receives; the same host for a link within it.
        rate: bytes per second.
    """

    start: str
    end: str
    rate: float

    def __str__(self) -> str:
        ends = self.start if self.start == self.end else f"{self.start} to {self.end}"
        return f"{ends} {bits(self.rate)}"


def fastest(ways: Iterable[Way]) -> dict[str, float]:
    """By host the highest rate of its links."""
    found: dict[str, float] = {}
    for way in ways:
        for host in (way.start, way.end):
            found[host] = max(found.get(host, 0.0), way.rate)
    return found


def usual_rate(ways: Iterable[Way]) -> float:
    """The median of the hosts' fastest: of three hosts, one slow one has most of the links."""
    return statistics.median(fastest(ways).values())


def slow(ways: Sequence[Way], times: float, usual: float) -> list[Way]:
    """Ways much slower than usual; between two hosts nothing is usual.

    Args:
        ways: between hosts.
        times: how much slower.
        usual: as `usual_rate` says.
    """
    if len({way.start for way in ways}) < 3:
        return []
    return [way for way in ways if way.rate * times < usual]


def uneven(ways: Iterable[Way], times: float) -> list[tuple[Way, Way]]:
    """Of each link that is so many times slower one way than the other: that way, and the other."""
    by_ends = {(way.start, way.end): way for way in ways}
    pairs = [(way, by_ends.get((way.end, way.start))) for way in by_ends.values()]
    return [(way, back) for way, back in pairs if back and way.rate * times < back.rate]


def common_host(slow: Sequence[Way], ways: Sequence[Way]) -> str | None:
    """The host whose link all of these ways have in common, if that is sure.

    Of more than two hosts it is the one that is an end of each of them, if all that it sends is
    slow, or all that it receives. Otherwise it could as well be one of the others.

    Args:
        slow: those that are slow.
        ways: all of them.
    """
    common = set.intersection(*({way.start, way.end} for way in slow)) if slow else set()
    if len(common) != 1 or len({way.start for way in ways}) < 3:
        return None
    host = common.pop()
    sent = {way for way in ways if way.start == host}
    received = {way for way in ways if way.end == host}
    if any(len(own) > 1 and own <= set(slow) for own in (sent, received)):
        return host
    return None


def bits(rate: float) -> str:
    """Bytes per second, in the unit that networks are sold in.

    Example:
        >>> bits(125e6)
        '1.0 Gbit/s'
    """
    megabits = rate * 8 / 1e6
    return f"{megabits / 1000:.1f} Gbit/s" if megabits >= 1000 else f"{megabits:.0f} Mbit/s"
