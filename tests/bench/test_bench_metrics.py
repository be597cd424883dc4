"""Times and bandwidths from plain values."""

from __future__ import annotations

import pytest

from tfhvd.bench.collectives import COLLECTIVES
from tfhvd.bench.measure import Effort, Subject, measure
from tfhvd.bench.metrics import Times, algorithm_bandwidth, bus_bandwidth


def test_times_of_few_and_of_many():
    assert Times.of([3.0, 1.0, 2.0]) == Times(count=3, least=1.0, median=2.0, p99=3.0)
    assert Times.of([4.0, 1.0]).median == 2.5
    hundred = Times.of([float(i) for i in range(100, 0, -1)])
    assert (hundred.least, hundred.median, hundred.p99) == (1.0, 50.5, 99.0)
    assert Times.of([float(i) for i in range(1, 1001)]).p99 == 990.0
    assert Times.of([0.5]) == Times(1, 0.5, 0.5, 0.5)


def test_no_times():
    with pytest.raises(ValueError, match="no repetitions"):
        Times.of([])


@pytest.mark.parametrize(
    ("collective", "ranks", "expected"),
    [
        ("allreduce", 2, 8.0),
        ("allreduce", 4, 12.0),
        ("allreduce", 1, 0.0),
        ("allgather", 4, 6.0),
        ("reducescatter", 4, 6.0),
        ("alltoall", 8, 7.0),
        ("broadcast", 8, 8.0),
        ("broadcast", 1, 0.0),
    ],
)
def test_bus_bandwidth(collective, ranks, expected):
    # 4 GB in half a second: 8 GB/s for the one who asked.
    assert algorithm_bandwidth(4_000_000_000, 0.5) == 8.0
    assert bus_bandwidth(collective, 4_000_000_000, 0.5, ranks) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("name", "asked", "given", "used"),
    [
        ("allreduce", 1024, 256, 1024),
        ("broadcast", 1024, 256, 1024),
        ("allgather", 1024, 64, 1024),  # 4 ranks' parts make the larger buffer
        ("allgather", 4, 1, 16),  # not less than one element each
        ("reducescatter", 1024, 256, 1024),
        ("reducescatter", 4, 4, 16),
        ("reducescatter", 28, 4, 16),  # whole elements for everyone
        ("alltoall", 28, 4, 16),
    ],
)
def test_bytes_that_are_used(name, asked, given, used):
    assert COLLECTIVES[name].given(4, asked, ranks=4) == given
    assert COLLECTIVES[name].size(4, asked, ranks=4) == used


def test_what_comes_out_of_each_collective():
    gives = {name: c.gives(4, 1, 2) for name, c in COLLECTIVES.items()}
    assert gives == {
        "allreduce": [(4, 3)],
        "allgather": [(4, 1), (4, 2)],
        "broadcast": [(4, 1)],
        "reducescatter": [(2, 3)],
        "alltoall": [(2, 1), (2, 2)],
    }


def test_effort_is_bounded_by_both():
    effort = Effort(repetitions=100, seconds=2.0)
    assert effort.count(0.001) == 100
    assert effort.count(0.1) == 20
    assert effort.count(60.0) == 5
    assert Effort(repetitions=2, seconds=1.0).count(60.0) == 2


class Pair:
    """Two ranks of which the other's repetitions all take 100 s."""

    rank, size = 0, 2

    def gather(self, numbers):
        return [list(numbers), [100.0] * len(numbers)]


def test_the_slowest_rank_counts():
    calls = []
    subjects = [Subject(name, lambda name=name: calls.append(name)) for name in "ab"]
    times = measure(subjects, Effort(repetitions=7), Pair())
    # Of processor time and context switches, too, the rank with the most counts.
    assert times == {name: Times(7, 100.0, 100.0, 100.0, 100.0, 100.0) for name in "ab"}
    # Each is warmed up and estimated (3 + 2), then takes turns of 1 or 2, after one that is not
    # counted.
    turns = "".join(calls).removeprefix("aaaaabbbbb")
    assert turns == "aabb" + "aabb" + "aaabbb" + "aabb" + "aaabbb"
