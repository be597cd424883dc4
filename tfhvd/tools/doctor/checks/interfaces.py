"""Is there a network that all hosts share, and only one that MPI can mean?"""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence

from tfhvd.tools.doctor.finding import Finding, failed, passed, warned
from tfhvd.tools.doctor.survey import Survey, hosts_text, ranks_by_host
from tfhvd.tools.facts import Facts
from tfhvd.tools.machine import Interface

_MOST_TRIED = 4  # addresses of a host


def by_host(facts: Mapping[int, Facts]) -> dict[str, tuple[Interface, ...]]:
    """Returns the interfaces of each host, by its name."""
    return {host: facts[ranks[0]].interfaces for host, ranks in ranks_by_host(facts).items()}


def shared(facts: Mapping[int, Facts], nics: tuple[str, ...] = ()) -> list[str]:
    """Returns the networks in which each host has a different address.

    Args:
        facts: by rank.
        nics: the only interfaces that count, if any are given.
    """
    hosts = by_host(facts)
    isolated = {interface.network for interface in _isolated(hosts)}
    common: list[str] | None = None
    for interfaces in hosts.values():
        theirs = dict.fromkeys(i.network for i in interfaces if not nics or i.name in nics)
        common = [
            network for network in (theirs if common is None else common) if network in theirs
        ]
    return [network for network in common or () if network not in isolated]


def shared_names(facts: Mapping[int, Facts], nics: tuple[str, ...] = ()) -> list[str]:
    """Returns the names of the interfaces that lead to the networks of `shared`."""
    networks = shared(facts, nics)
    every = (i for interfaces in by_host(facts).values() for i in interfaces)
    return list(dict.fromkeys(i.name for i in every if i.network in networks))


def addresses(facts: Mapping[int, Facts], host: str, nics: tuple[str, ...] = ()) -> list[str]:
    """Returns addresses by which the other hosts may reach one, the likeliest first."""
    hosts = by_host(facts)
    networks = shared(facts, nics)
    isolated = _isolated(hosts)
    own = [i for i in hosts[host] if i not in isolated and (not nics or i.name in nics)]
    found = [i.address for i in own if i.network in networks] or [i.address for i in own]
    return found[:_MOST_TRIED]


def _isolated(hosts: Mapping[str, tuple[Interface, ...]]) -> list[Interface]:
    """Interfaces whose address another host has as well: of a bridge that ends in each host."""
    counts = collections.Counter(i.address for interfaces in hosts.values() for i in interfaces)
    return [i for interfaces in hosts.values() for i in interfaces if counts[i.address] > 1]


def check(survey: Survey) -> list[Finding]:
    """Compares the interfaces of all hosts."""
    hosts = by_host(survey.facts)
    nics = tuple(survey.nics)
    if len(hosts) == 1:
        return [passed("network", "one host: its ranks need no network")]
    networks = shared(survey.facts, nics)
    findings = missing(hosts, nics) + _packets(hosts, networks)
    names = shared_names(survey.facts, nics)
    isolated = list(dict.fromkeys(i.name for i in _isolated(hosts)))
    if isolated and not nics:
        text = f"{', '.join(isolated)} has the same address on several hosts, and leads to none"
        fix = "name the network that all hosts share"
        if names:
            fix = f"--network-interfaces {','.join(names)}, for MPI may try the other and hang"
        findings.append(warned("network", text, fix))
    if findings:
        return findings
    if not networks:
        text = f"{hosts_text(list(hosts))} are in different networks, with routers between them"
        return [passed("network", text, _table(hosts))]
    text = f"all hosts share {', '.join(networks)} ({', '.join(names)})"
    return [passed("network", text, _table(hosts))]


def missing(hosts: Mapping[str, tuple[Interface, ...]], nics: Sequence[str]) -> list[Finding]:
    """Finds hosts that have none of the interfaces that the user has named."""
    without = [
        host for host, own in hosts.items() if nics and not {i.name for i in own} & set(nics)
    ]
    if not without:
        return []
    there = sorted({i.name for host in without for i in hosts[host]})
    text = f"{hosts_text(without)}: there is no interface {' or '.join(nics)} that is up"
    fix = (
        f"--network-interfaces with the name that it has there: {', '.join(there) or 'none is up'}"
    )
    return [failed("network", text, fix)]


def _packets(hosts: Mapping[str, tuple[Interface, ...]], networks: list[str]) -> list[Finding]:
    findings = []
    for network in networks:
        sizes: dict[int, list[str]] = {}
        for host, interfaces in hosts.items():
            size = next(i.mtu for i in interfaces if i.network == network)
            sizes.setdefault(size, []).append(host)
        if len(sizes) > 1:
            groups = "; ".join(f"{size} on {hosts_text(them)}" for size, them in sizes.items())
            text = f"packets of network {network} have different sizes (MTU): {groups}"
            name = next(i.name for i in next(iter(hosts.values())) if i.network == network)
            fix = f"ip link set {name} mtu {min(sizes)} on all hosts, or large ones can be lost"
            findings.append(warned("network", text, fix))
    return findings


def _table(hosts: Mapping[str, tuple[Interface, ...]]) -> list[str]:
    return [
        f"host {host}: " + ", ".join(f"{i.name} {i.address} (MTU {i.mtu})" for i in own)
        for host, own in hosts.items()
    ]
