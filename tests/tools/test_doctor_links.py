"""Links between hosts: who measures when, what is measured, and which links are named."""

from __future__ import annotations

import socket
import threading
from dataclasses import replace

import pytest
from surveys import job, link, only, survey

from tfhvd.tools.doctor import link as measuring
from tfhvd.tools.doctor import schedule
from tfhvd.tools.doctor.checks import links
from tfhvd.tools.doctor.finding import Status
from tfhvd.tools.doctor.link import Measured
from tfhvd.tools.doctor.survey import Link

THREE = job("a", "b", "c")
TOKEN = "t" * 32


@pytest.mark.parametrize("count", range(12))
def test_each_pair_of_hosts_once_and_no_host_twice_at_once(count):
    rounds = schedule.rounds(count)
    every = [(a, b) for a in range(count) for b in range(a + 1, count)]
    assert sorted(pair for pairs in rounds for pair in pairs) == every
    for pairs in rounds:
        assert len({host for pair in pairs for host in pair}) == 2 * len(pairs)
    assert len(rounds) <= count


def test_the_time_of_many_rounds_is_bounded():
    assert schedule.seconds_each(1) == 0.4
    assert schedule.seconds_each(10_000) == 0.05
    assert 3 * 20 * schedule.seconds_each(20) <= 6.0


class TestNamed:
    def warned(self, *found: Link) -> str:
        return only(links.check, survey(THREE, links=found), Status.WARNED).text

    def test_links_that_are_alike_pass(self):
        found = [link("a", "b", 900, 910), link("b", "c", 600, 800), link("a", "c", 890, 900, 0.2)]
        finding = only(links.check, survey(THREE, links=found), Status.PASSED)
        assert finding.text == (
            "between hosts 600 Mbit/s to 910 Mbit/s, 100 us to 200 us there and back"
        )
        assert finding.details[0].startswith("a - b: 900 Mbit/s and 910 Mbit/s, 100 us there")

    def test_a_slow_host_though_most_links_are_its_own(self):
        text = self.warned(
            link("a", "b", 9000, 9000), link("a", "c", 900, 940), link("b", "c", 920, 910)
        )
        assert text == (
            "slow, and all of host c: a to c 900 Mbit/s, c to b 910 Mbit/s, b to c 920 Mbit/s, "
            "c to a 940 Mbit/s; others have 9.0 Gbit/s"
        )

    def test_a_slow_link(self):
        text = self.warned(
            link("a", "b", 900, 900), link("a", "c", 5000, 5000), link("b", "c", 5000, 5000)
        )
        assert text == ("slow: a to b 900 Mbit/s, b to a 900 Mbit/s; others have 5.0 Gbit/s")

    def test_a_host_that_receives_slowly(self):
        text = self.warned(
            link("a", "b", 900, 900), link("a", "c", 90, 900), link("b", "c", 80, 900)
        )
        assert text == (
            "slow one way, and all of host c: a to c 90 Mbit/s, back 900 Mbit/s, b to c 80 Mbit/s, "
            "back 900 Mbit/s"
        )

    def test_of_two_hosts_the_slow_way_is_named(self):
        assert self.warned(link("a", "b", 900, 100)) == (
            "slow one way: b to a 100 Mbit/s, back 900 Mbit/s"
        )

    def test_a_long_way(self):
        text = self.warned(
            link("a", "b", 900, 900, 0.1), link("a", "c", 900, 900, 5), link("b", "c", 900, 900)
        )
        assert text == "long round trips: a and c 5.0 ms; others have 100 us"

    def test_a_host_that_is_slow_within_itself(self):
        alike = [link("a", "b", 9000, 9000), link("b", "c", 9000, 9000), link("a", "c", 9000, 9000)]
        own = [link(host, host, 30000, 30000) for host in ("a", "b")]
        text = self.warned(*alike, *own, link("c", "c", 4000, 12000))
        assert text == (
            "slow between ranks of one host: c 4.0 Gbit/s; the network, or most other hosts, have "
            "more than twice as much"
        )
        fast = link("c", "c", 20000, 20000)
        assert only(links.check, survey(THREE, links=[*alike, *own, fast]), Status.PASSED)
        assert links.suspects([*alike, *own, fast]) == []

    def test_of_one_host_alone_nothing_is_usual(self):
        assert only(links.check, survey(THREE, links=[link("a", "a", 50, 50)]), Status.PASSED)

    def test_all_are_slow(self):
        assert self.warned(link("a", "b", 90, 95)).startswith("under 500 Mbit/s: a to b 90 Mbit/s")

    def test_pairs_for_which_there_was_no_time(self):
        found = links.check(survey(THREE, links=[link("a", "b", 900, 900)], unmeasured=7))
        assert found[0].text == "7 pairs of hosts were not measured: the time was over"


def test_a_host_that_cannot_be_reached():
    about = Measured(refused=(("10.0.0.2", "Connection refused"),), error="no address leads there")
    finding = only(links.check, survey(THREE, links=[Link("a", "b", about)]), Status.FAILED)
    assert finding.text == "host a cannot send to host b: 10.0.0.2: Connection refused"
    assert finding.fix.startswith("open all TCP ports")


def test_one_of_two_addresses_that_leads_nowhere():
    good = link("a", "b", 900, 900)
    found = [replace(good, measured=replace(good.measured, refused=(("10.7.0.2", "timed out"),)))]
    finding = only(links.check, survey(THREE, links=found), Status.WARNED)
    assert finding.text == "host a reaches host b by 10.0.0.9 but not by 10.7.0.2: timed out"


def test_a_link_is_measured_again_before_it_is_named():
    slow, fine = link("a", "b", 100, 900), link("a", "c", 900, 900)
    broken = Link("b", "c", Measured(error="gone"))
    assert links.suspects([broken, slow, fine]) == [slow, broken]
    assert links.suspects([fine]) == []
    again = replace(slow, again=link("a", "b", 850, 800, 0.05).measured)
    assert again.best == link("a", "b", 850, 900, 0.05).measured
    assert replace(slow, again=broken.measured).best == slow.measured
    assert replace(broken, again=fine.measured).best == fine.measured
    only(links.check, survey(THREE, links=[again, fine]), Status.PASSED)


def test_a_link_that_could_not_be_measured_again_is_not_named():
    found = [replace(link("a", "b", 600, 5000), doubtful=True), link("a", "c", 5000, 5000)]
    assert links.suspects(found)
    only(links.check, survey(THREE, links=found), Status.PASSED)


def test_what_is_usual_goes_by_measurements_at_the_same_time():
    found = [link(a, b, 4000, 4000) for a, b in (("a", "b"), ("b", "c"), ("a", "c"))]
    found[0] = replace(found[0], again=link("a", "b", 13000, 13000).measured)
    only(links.check, survey(THREE, links=found), Status.PASSED)


def test_a_measurement():
    server = measuring.Server(TOKEN)
    found = measuring.measure(["127.0.0.1"], server.port, TOKEN, 0.05)
    assert found.address == "127.0.0.1" and not found.error and not found.refused
    assert found.round_trip > 0 and found.up > 0 and found.down > 0


def test_a_measurement_of_nothing():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    found = measuring.measure(["127.0.0.1"], port, TOKEN, 0.05)
    assert found.error == "no address leads there"
    assert found.refused == (("127.0.0.1", "Connection refused"),)


def test_whoever_does_not_know_the_token_measures_nothing():
    server = measuring.Server(TOKEN)
    found = measuring.measure(["127.0.0.1"], server.port, "x" * 32, 0.05)
    assert found.error


def test_a_connection_that_ends_early_has_a_rate():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        thread = threading.Thread(target=lambda: theirs.sendall(bytes(1 << 16)))
        thread.start()
        thread.join()
        theirs.shutdown(socket.SHUT_WR)
        # All of it came at once, and the connection ended: it counts as if it had taken the time.
        assert measuring._rate(ours, 2.0) == (1 << 16) / 2.0
