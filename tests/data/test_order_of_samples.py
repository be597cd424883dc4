"""The order of the samples of an epoch: a permutation that each place tells by itself."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest

from tfhvd.data.order import Order
from tfhvd.data.slices import Slices


def shuffled(length, seed=0, epoch=0):
    return Order(length, True, seed).samples(epoch, np.arange(length))


@pytest.mark.parametrize("length", [*range(18), 63, 64, 65, 1000, 99_991])
def test_each_sample_has_one_place(length):
    for seed, epoch in [(0, 0), (1, 0), (0, 1), (2**64 - 1, 2**33)]:
        assert sorted(shuffled(length, seed, epoch)) == list(range(length))


def test_a_place_tells_its_sample_whatever_else_is_asked_for():
    order, whole = Order(1000, True, 7), shuffled(1000, 7, 3)
    for places in ([999], [5, 5, 0], range(300, 500)):
        assert order.samples(3, np.array(places)).tolist() == whole[list(places)].tolist()


def test_without_shuffle_it_is_the_order_of_the_source():
    assert Order(9, False, 7).samples(3, np.array([8, 0, 4])).tolist() == [8, 0, 4]


def test_a_source_larger_than_any_memory():
    order, places = Order(10**15, True, 0), np.arange(1000) + 10**14
    found = order.samples(0, places)
    assert len(set(found.tolist())) == 1000 and found.min() >= 0 and found.max() < 10**15
    assert np.quantile(found, [0.25, 0.5, 0.75]) == pytest.approx(
        np.array([0.25, 0.5, 0.75]) * 10**15, rel=0.25
    )


def test_seeds_and_epochs_have_orders_of_their_own():
    orders = [shuffled(1000, seed, epoch) for seed in range(5) for epoch in range(5)]
    for one, other in itertools.combinations(orders, 2):
        assert abs(np.corrcoef(one, other)[0, 1]) < 0.15
        assert (one == other).sum() < 10


def test_the_numbers_are_those_of_every_release():
    """A training that is resumed with another release of tfhvd goes on in its order."""
    assert shuffled(10, 0, 0).tolist() == [0, 8, 4, 9, 6, 1, 5, 7, 2, 3]
    assert Order(10**9, True, 1).samples(2, np.arange(3)).tolist() == [
        466975728,
        972498660,
        107802965,
    ]


def chi_square(counts, expected):
    """By how many standard deviations counts differ from what chance would give."""
    freedom = len(counts) - 1
    chi = sum((count - expected) ** 2 / expected for count in counts)
    return (chi - freedom) / math.sqrt(2 * freedom)


@pytest.mark.parametrize("length", [3, 5, 6])
def test_all_orders_of_a_few_samples_are_equally_likely(length):
    """The numbers are always the same, so that chance does not decide."""
    orders = math.factorial(length)
    seen = Counter(tuple(shuffled(length, seed, e)) for seed in range(5) for e in range(orders))
    counts = [seen[order] for order in itertools.permutations(range(length))]
    assert chi_square(counts, 5) < 3


def test_each_sample_comes_to_each_place_equally_often():
    places = np.array([shuffled(50, seed=1, epoch=epoch) for epoch in range(500)])
    counts = [np.bincount(column, minlength=50) for column in places.T]
    assert chi_square(np.concatenate(counts).tolist(), 500 / 50) < 3


def test_neighbours_are_not_neighbours_afterwards():
    steps = np.concatenate([np.diff(shuffled(500, epoch=e)) % 500 for e in range(50)])
    assert chi_square(np.bincount(steps, minlength=500)[1:].tolist(), steps.size / 499) < 3


class TestSlices:
    """Which places a rank has."""

    @pytest.mark.parametrize("length", [0, 1, 5, 12, 13, 23, 24])
    @pytest.mark.parametrize("size", [1, 2, 3, 6])
    def test_each_place_is_on_one_rank(self, length, size):
        slices = Slices(length, 6, drop_remainder=False)
        of_ranks = [slices.places(0, slices.steps, rank, size) for rank in range(size)]
        assert sorted(np.concatenate([p for p, _ in of_ranks])) == list(range(length))
        assert [int((c > 0).sum()) for _, c in of_ranks] == [
            slices.steps_of(rank, size) for rank in range(size)
        ]
        assert slices.steps_of(0, size) == slices.steps

    def test_what_a_step_has_does_not_depend_on_the_ranks(self):
        slices = Slices(23, 6, drop_remainder=False)
        for step in range(slices.steps):
            together = [
                np.concatenate([slices.places(step, step + 1, r, n)[0] for r in range(n)]).tolist()
                for n in (1, 2, 3, 4, 6)
            ]
            assert together == [together[0]] * 5

    def test_without_the_remainder(self):
        slices = Slices(23, 6, drop_remainder=True)
        assert slices.steps == 3 and slices.steps_of(1, 2) == 3
        assert slices.places(0, 3, 0, 1)[0].tolist() == list(range(18))
