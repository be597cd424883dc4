"""Which link is slow, by what was sent over connections in training; and who is not to be named."""

from __future__ import annotations

import itertools

import pytest

from tfhvd.profiling import report, slow_links
from tfhvd.profiling.breakdown import PARTS, Step
from tfhvd.profiling.intervals import Span
from tfhvd.profiling.straggler import find
from tfhvd.profiling.trace import Sent, Trace

MEGABYTES = 100
COMMUNICATION = 4.0  # seconds of all steps


def job(hosts: str, rates: dict[str, float], megabytes: float = MEGABYTES) -> dict[int, Trace]:
    """A rank on each host, with a connection to each other one.

    Args:
        hosts: a letter each.
        rates: megabytes per second by sender and receiver, as "ab"; else 100.
        megabytes: over each.
    """
    sent: dict[str, list[Sent]] = {host: [] for host in hosts}
    for a, b in itertools.permutations(hosts, 2):
        busy = megabytes / rates.get(a + b, 100.0)
        port = {"own": f"10.0.0.{ord(a)}:{ord(b)}", "peer": f"10.0.0.{ord(b)}:{ord(a)}"}
        sent[a].append(Sent(**port, bytes=int(megabytes * 1e6), busy=busy))
    return {
        rank: Trace(rank, host, (Span(0, 5),), sent=tuple(sent[host]))
        for rank, host in enumerate(hosts)
    }


def slow_link(*, of: str, both_ways: bool = True, hosts: str = "abcd") -> dict[str, float]:
    others = [host for host in hosts if host != of]
    rates = {other + of: 10.0 for other in others}
    return {**rates, **({of + other: 10.0 for other in others} if both_ways else {})}


@pytest.mark.parametrize("hosts", ["abc", "abcd"])
@pytest.mark.parametrize("of", ["a", "c"])
@pytest.mark.parametrize("both_ways", [True, False])
def test_the_host_whose_link_is_slow(hosts, of, both_ways):
    rates = slow_link(of=of, both_ways=both_ways, hosts=hosts)
    found = slow_links.find(job(hosts, rates), COMMUNICATION)
    assert found is not None and found.host == of
    assert {way.start + way.end for way in found.ways} == set(rates)
    assert found.rate == pytest.approx(10e6) and found.usual == pytest.approx(100e6)


@pytest.mark.parametrize("hosts", ["abc", "abcd"])
def test_of_a_slow_link_between_two_hosts_neither_is_named(hosts):
    found = slow_links.find(job(hosts, {"ab": 10.0, "ba": 10.0}), COMMUNICATION)
    assert found is not None and found.host is None
    assert {way.start + way.end for way in found.ways} == {"ab", "ba"}


def test_of_a_host_that_is_slow_to_some_only_it_is_not_sure():
    found = slow_links.find(job("abcd", {"ac": 10.0, "bc": 10.0}), COMMUNICATION)
    assert found is not None and found.host is None


def test_of_two_hosts_nothing_is_usual_but_one_way_may_be_slower():
    assert slow_links.find(job("ab", {"ab": 10.0, "ba": 10.0}), COMMUNICATION) is None
    found = slow_links.find(job("ab", {"ab": 10.0}), COMMUNICATION)
    assert found is not None and found.host is None
    assert [str(way) for way in found.ways] == ["a to b 80 Mbit/s"]
    assert found.usual == pytest.approx(100e6)


@pytest.mark.parametrize(
    ("rates", "megabytes", "communication"),
    [
        ({}, MEGABYTES, COMMUNICATION),
        (slow_link(of="c"), 0.01, 0.0),  # a few small messages
        (slow_link(of="c"), MEGABYTES, 1000.0),  # what takes so long is something else
        ({"ab": 50.0, "ba": 50.0}, MEGABYTES, COMMUNICATION),  # not by much
    ],
)
def test_no_link_is_named_without_a_reason(rates, megabytes, communication):
    assert slow_links.find(job("abcd", rates, megabytes), communication) is None


def test_connections_to_others_are_left_out():
    traces = job("abc", slow_link(of="c", hosts="abc"))
    alone = {0: traces[0]}  # the other ends belong to nobody who is known
    assert slow_links.find(alone, COMMUNICATION) is None
    assert slow_links.find({0: Trace(0, "a", ())}, COMMUNICATION) is None


def step(rank: int, of: int, waiting: float = 0.0) -> Step:
    parts = dict.fromkeys(PARTS, 0.0)
    parts.update(computing=1.0, communication=COMMUNICATION, waiting=waiting)
    return Step(5.0 + waiting, parts, {of: waiting} if waiting and rank != of else {})


def test_the_link_of_a_host_keeps_the_others():
    traces = job("abc", slow_link(of="c", hosts="abc"))
    link = slow_links.find(traces, COMMUNICATION)
    steps = {rank: [step(rank, 0)] for rank in traces}
    found = find(steps, traces, link)
    assert found is not None
    assert (found.rank, found.cause) == (2, "link")
    assert found.seconds == pytest.approx(0.9 * COMMUNICATION)
    made = report.Report(steps, found, 0.0, 1.0, 1e6, link=link)
    assert (
        "The others wait for rank 2 for 3600.0 ms a step (72%), though it is ready: the link of "
        "its host c is slow, with 80 Mbit/s where others have 800 Mbit/s."
    ) in made.lines()


def test_what_costs_more_is_the_straggler():
    traces = job("abc", slow_link(of="c", hosts="abc"))
    link = slow_links.find(traces, COMMUNICATION)
    steps = {rank: [step(rank, of=1, waiting=8.0 if rank != 1 else 0.0)] for rank in traces}
    found = find(steps, traces, link)
    assert found is not None and found.rank == 1


def test_a_link_of_nobody_is_no_straggler():
    traces = job("abc", {"ab": 10.0, "ba": 10.0})
    link = slow_links.find(traces, COMMUNICATION)
    steps = {rank: [step(rank, 0)] for rank in traces}
    assert find(steps, traces, link) is None
    text = "\n".join(report.Report(steps, None, 0.0, 1.0, 1e6, link=link).lines())
    assert "A link is slow: a to b 80 Mbit/s, b to a 80 Mbit/s; others have 800 Mbit/s." in text
    assert "tfhvd doctor" in text
