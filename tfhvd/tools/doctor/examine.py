"""Asks the probes of a job for all that the checks need to know, in a bounded time."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import time
from collections.abc import Mapping, Sequence

from tfhvd._version import __version__
from tfhvd.tools import facts as own_facts
from tfhvd.tools.doctor import schedule
from tfhvd.tools.doctor.budget import Budget
from tfhvd.tools.doctor.checks import interfaces, links, meeting
from tfhvd.tools.doctor.finding import Finding, failed
from tfhvd.tools.doctor.link import Measured
from tfhvd.tools.doctor.probes import Probe, ProbeError, Probes, ProbeTimeoutError
from tfhvd.tools.doctor.survey import Clock, Link, Survey, ranks_by_host
from tfhvd.tools.facts import Facts

_START = 12.0  # seconds until all probes have started
_ANSWER = 8.0  # seconds for an answer that takes no time by itself
_LINKS = 8.0  # seconds for all measurements; the rest is left out
_AGAIN = 5.0  # the same for second ones
_MEASURE = 6.0  # seconds for the answer of one
_MEET, _MEET_LEAST = 10.0, 5.0  # seconds until the ranks have met
_TIMES = 8  # that a clock is asked
_CLOCK = 2.0  # seconds for an answer


def examine(
    probes: Probes, nics: Sequence[str], budget: Budget
) -> tuple[Survey | None, list[Finding]]:
    """Asks all questions.

    Args:
        probes: which have been started.
        nics: the interfaces that the user has named.
        budget: the time for all of it.

    Returns:
        What was found out, None if nothing could be; and what prevented the rest.
    """
    try:
        probes.wait(budget.take(_START))
    except ProbeError as error:
        fix = (
            "where mpirun finds no way between the hosts, name their network: "
            "--network-interfaces eth0. All that it says: tfhvdrun -v with these options, and true"
        )
        text, _, command = str(error).partition(" Type: ")
        return None, [failed("start", text, command or fix, error.said)]
    others = [p for p in probes.by_rank.values() if p.version != __version__]
    if others:
        text = "; ".join(f"{p.version} on rank {p.rank} (host {p.host})" for p in others[:4])
        fix = f"install tfhvd {__version__} there, which is this machine's"
        return None, [failed("versions", f"tfhvd differs: {text}", fix)]
    answers, errors = probes.ask_all("facts", budget.take(_ANSWER))
    facts = {rank: own_facts.from_json(answer) for rank, answer in answers.items()}
    if errors:
        fix = "look at that host: its log, its load, its memory"
        return None, [failed("start", str(error), fix) for error in errors.values()]
    measured, unmeasured = _links(probes.by_rank, facts, tuple(nics), budget)
    clocks = _clocks(probes.by_rank, facts)
    met = _meet(probes, budget.take(_MEET, _MEET_LEAST))
    probes.finish()
    survey = Survey(
        facts=facts,
        links=measured,
        unmeasured=unmeasured,
        clocks=clocks,
        meeting=met,
        warnings=probes.warnings(),
        nics=tuple(nics),
    )
    return survey, []


def _meet(probes: Probes, limit: float) -> dict[int, str]:
    """Has all ranks meet; returns what went wrong, by rank."""
    answers, errors = probes.ask_all("meet", limit)
    found = {rank: str(answer["error"]) for rank, answer in answers.items()}
    ended = [rank for rank, error in errors.items() if not isinstance(error, ProbeTimeoutError)]
    if ended:  # One that MPI has ended takes the others with it.
        return {**found, **dict.fromkeys(errors, probes.why_ended())}
    if errors:
        probes.end()
    return {**found, **dict.fromkeys(errors, meeting.HANGS)}


def _clocks(probes: Mapping[int, Probe], facts: Mapping[int, Facts]) -> list[Clock]:
    """Asks each host, one after the other: the quickest answer is the most exact one."""
    clocks = []
    for host, ranks in ranks_by_host(facts).items():
        found = []
        try:
            for _ in range(_TIMES):
                before = time.time()
                began = time.perf_counter()
                there = float(probes[ranks[0]].ask("time", _CLOCK)["time"])
                took = time.perf_counter() - began
                found.append((took, there - before - took / 2))
        except ProbeError:
            continue
        took, ahead = min(found)
        clocks.append(Clock(host, ahead, took / 2))
    return clocks


def _links(
    probes: Mapping[int, Probe], facts: Mapping[int, Facts], nics: tuple[str, ...], budget: Budget
) -> tuple[list[Link], int]:
    """Measures within each host, between all hosts, and again if a link would be named."""
    hosts = ranks_by_host(facts)
    names = list(hosts)
    rounds = schedule.rounds(len(names))
    seconds = schedule.seconds_each(len(rounds))
    until = time.monotonic() + budget.take(_LINKS)
    within = [name for name in names if len(hosts[name]) > 1]
    found: list[Link] = []
    unmeasured = 0

    def between(first: str, second: str) -> Link:
        targets = interfaces.addresses(facts, second, nics)
        return _measure(
            probes, (first, hosts[first][0]), (second, hosts[second][0]), targets, seconds
        )

    def inside(name: str) -> Link:
        first, second = hosts[name][:2]
        return _measure(probes, (name, first), (name, second), ["127.0.0.1"], seconds)

    with concurrent.futures.ThreadPoolExecutor(max(1, len(names))) as pool:
        found += pool.map(inside, within)
        for pairs in rounds:
            if time.monotonic() > until:
                unmeasured += len(pairs)
                continue
            named = [(names[first], names[second]) for first, second in pairs]
            found += pool.map(lambda pair: between(*pair), named)
    until = time.monotonic() + budget.take(_AGAIN)
    for suspect in links.suspects(found):
        doubtful = time.monotonic() > until
        again = None
        if not doubtful:
            one = suspect.first == suspect.second
            measured = inside(suspect.first) if one else between(suspect.first, suspect.second)
            again = measured.measured
        at = found.index(suspect)
        found[at] = dataclasses.replace(suspect, again=again, doubtful=doubtful)
    return found, unmeasured


def _measure(
    probes: Mapping[int, Probe],
    first: tuple[str, int],
    second: tuple[str, int],
    targets: Sequence[str],
    seconds: float,
) -> Link:
    """Has the probe of one (host, rank) measure what lies between it and another."""
    try:
        answer = probes[first[1]].ask(
            "measure",
            _MEASURE,
            addresses=list(targets),
            port=probes[second[1]].port,
            seconds=seconds,
        )
    except ProbeError as error:
        return Link(first[0], second[0], Measured(error=str(error)))
    answer["refused"] = tuple((address, reason) for address, reason in answer["refused"])
    return Link(first[0], second[0], Measured(**answer))
