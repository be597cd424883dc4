"""Are all links between the hosts, and within them, as fast as the others, and both ways alike?"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from tfhvd.profiling import link_speeds as ways_of_hosts
from tfhvd.profiling.link_speeds import Way, bits, common_host, fastest
from tfhvd.tools.doctor.finding import Finding, failed, passed, warned
from tfhvd.tools.doctor.survey import Link, Survey

_SLOWER = 2.0  # times than usual, or than the other way
_LATER = 3.0  # times than usual
_LATER_BY = 0.0002  # seconds
_LEAST = 500e6 / 8  # bytes per second: half a gigabit
_MOST_NAMED = 4  # links in a line

_LOOK = (
    "look at the cards of these hosts (ethtool INTERFACE), at cables and ports of the switch, and "
    "at what else is sent; or leave a host out of -H"
)


def suspects(links: Sequence[Link]) -> list[Link]:
    """Returns the links that would be named: those to be measured once more, without others."""
    ways = (*_slow(links), *_uneven(links), *_slow_within(links))
    named = {(way.start, way.end) for way in ways}
    named |= {(link.first, link.second) for link in _late(links)}
    found = [
        link
        for link in links
        if link.best.error or {(link.first, link.second), (link.second, link.first)} & named
    ]
    # Those that cannot be measured take the longest.
    return sorted(found, key=lambda link: (bool(link.best.error), link.best.up + link.best.down))


def check(survey: Survey) -> list[Finding]:
    """Compares all links."""
    links = survey.links
    if not links:
        return []
    findings = _broken(links)
    ways = _ways(links)
    sure = [link for link in links if not link.doubtful]
    uneven = _uneven(sure)
    slow = [way for way in _slow(links) if way not in uneven and way in _ways(sure)]
    if slow:
        usual = bits(_usual_rate(links))
        text = f"slow{_of_host(slow, ways)}: {_named(slow)}; others have {usual}"
        findings.append(warned("links", text, _LOOK))
    if uneven:
        both = ways_of_hosts.uneven(_ways(sure), _SLOWER)
        pairs = ", ".join(f"{way}, back {bits(back.rate)}" for way, back in both[:_MOST_NAMED])
        text = f"slow one way{_of_host(uneven, ways)}: {pairs}"
        findings.append(warned("links", text, _LOOK))
    late = [link for link in _late(links) if not link.doubtful]
    if late:
        usual = _time(_usual_round_trip(links))
        text = ", ".join(
            f"{link.first} and {link.second} {_time(link.best.round_trip)}"
            for link in late[:_MOST_NAMED]
        )
        findings.append(
            warned(
                "links",
                f"long round trips: {text}; others have {usual}",
                "put the hosts into one rack, zone or placement group; or leave one out of -H",
            )
        )
    findings += _within(sure)
    rest = [way for way in ways if way.rate < _LEAST and way not in slow and way not in uneven]
    if rest:
        findings.append(
            warned(
                "links",
                f"under {bits(_LEAST)}: {_named(rest)}",
                "gradients wait for such a link: ethtool INTERFACE shows the speed of the card; "
                "docs/how-to/compress-gradients.md says how to send less",
            )
        )
    if survey.unmeasured:
        findings.append(
            warned(
                "links",
                f"{survey.unmeasured} pairs of hosts were not measured: the time was over",
                "run it again with fewer hosts",
            )
        )
    return findings or [passed("links", _summary(links), _table(links))]


def _between(links: Iterable[Link]) -> list[Link]:
    """The links between hosts that could be measured."""
    return [link for link in links if link.first != link.second and not link.best.error]


def _ways(links: Iterable[Link]) -> list[Way]:
    ways = []
    for link in _between(links):
        ways.append(Way(link.first, link.second, link.best.up))
        ways.append(Way(link.second, link.first, link.best.down))
    return ways


def _broken(links: Sequence[Link]) -> list[Finding]:
    findings = []
    for link in links:
        about = link.best
        why = "; ".join(f"{address}: {reason}" for address, reason in about.refused)
        if about.error:
            reason = why if about.refused and not about.address else about.error
            text = f"host {link.first} cannot send to host {link.second}: {reason}"
            fix = "open all TCP ports between the hosts in firewall and security group"
            findings.append(failed("links", text, fix))
        elif why:
            text = (
                f"host {link.first} reaches host {link.second} by {about.address} but not by {why}"
            )
            fix = "name the network that leads there: --network-interfaces"
            findings.append(warned("links", text, fix))
    return findings


def _slow(links: Sequence[Link]) -> list[Way]:
    """Ways much slower than usual."""
    ways = _ways(links)
    return ways_of_hosts.slow(ways, _SLOWER, _usual_rate(links)) if ways else []


def _within(links: Sequence[Link]) -> list[Finding]:
    slow = _slow_within(links)
    if not slow:
        return []
    text = (
        f"slow between ranks of one host: {_named(slow)}; the network, or most other hosts, have "
        "more than twice as much"
    )
    fix = (
        "look what else runs there (top), and whether a CPU quota or one core holds the ranks back"
    )
    return [warned("links", text, fix)]


def _slow_within(links: Sequence[Link]) -> list[Way]:
    """The hosts within which it is much slower than in most others, or than from there to others.

    Two ranks of one host meet in its memory, which no network is faster than.
    """
    within = [
        Way(link.first, link.second, min(link.best.up, link.best.down))
        for link in links
        if link.first == link.second and not link.best.error
    ]
    usual = statistics.median(way.rate for way in within) if len(within) > 2 else 0.0
    between = fastest(_ways(links))
    return [way for way in within if way.rate * _SLOWER < max(between.get(way.start, 0.0), usual)]


def _usual_rate(links: Sequence[Link]) -> float:
    """By the first measurements: a second one, alone, may be faster than what is usual."""
    return ways_of_hosts.usual_rate(
        Way(link.first, link.second, max(link.measured.up, link.measured.down))
        for link in _between(links)
    )


def _uneven(links: Sequence[Link]) -> list[Way]:
    """The slower way of each link that is much slower than the other."""
    return [way for way, _ in ways_of_hosts.uneven(_ways(links), _SLOWER)]


def _late(links: Sequence[Link]) -> list[Link]:
    between = _between(links)
    if len(between) < 2:
        return []
    usual = _usual_round_trip(links)
    most = max(_LATER * usual, usual + _LATER_BY)
    return [link for link in between if link.best.round_trip > most]


def _usual_round_trip(links: Sequence[Link]) -> float:
    shortest: dict[str, float] = {}
    for link in _between(links):
        for host in (link.first, link.second):
            trip = link.best.round_trip
            shortest[host] = min(shortest.get(host, trip), trip)
    return statistics.median(shortest.values())


def _of_host(slow: Sequence[Way], ways: Sequence[Way]) -> str:
    host = common_host(slow, ways)
    return f", and all of host {host}" if host else ""


def _named(ways: Sequence[Way]) -> str:
    slowest = sorted(ways, key=lambda way: way.rate)
    more = len(ways) - _MOST_NAMED
    names = ", ".join(map(str, slowest[:_MOST_NAMED]))
    return f"{names}, and {more} more" if more > 0 else names


def _summary(links: Sequence[Link]) -> str:
    ways = _ways(links)
    if not ways:
        within = [link.best.round_trip for link in links if not link.best.error]
        return f"within the host {_time(min(within))} there and back" if within else "none"
    rates = [way.rate for way in ways]
    trips = [link.best.round_trip for link in _between(links)]
    return (
        f"between hosts {_range(bits(min(rates)), bits(max(rates)))}, "
        f"{_range(_time(min(trips)), _time(max(trips)))} there and back"
    )


def _range(least: str, most: str) -> str:
    return least if least == most else f"{least} to {most}"


def _table(links: Sequence[Link]) -> list[str]:
    rows = []
    for link in links:
        names = link.first if link.first == link.second else f"{link.first} - {link.second}"
        about = link.best
        if not about.error:
            rows.append(
                f"{names}: {bits(about.up)} and {bits(about.down)}, "
                f"{_time(about.round_trip)} there and back, by {about.address}"
            )
    return rows


def _time(seconds: float) -> str:
    return f"{1e3 * seconds:.1f} ms" if seconds >= 0.001 else f"{1e6 * seconds:.0f} us"
