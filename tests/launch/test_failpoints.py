"""Elastic jobs whose ranks end at failpoints: a few. The rest: `tests/long/failpoints.py`."""

from __future__ import annotations

import failpoints
import pytest

from tfhvd.runtime.native import load_native

pytestmark = pytest.mark.thorough

CASES = {str(case): case for case in failpoints.everything()}


def test_every_place_is_tried():
    places = load_native().failpoints()
    assert failpoints.WHEN.keys() == places.keys()
    assert {case.place for case in CASES.values()} == places.keys()
    assert len(CASES) == len(failpoints.everything()), "two cases have one name"


def test_a_place_that_does_not_exist():
    with pytest.raises(KeyError):
        load_native().pass_failpoint("nowhere")


@pytest.mark.parametrize(
    "name",
    [
        "control_plane_open: a host's first, at the start",
        *(
            pytest.param(str(case), marks=pytest.mark.thorough)
            for case in failpoints.sample(failpoints.everything(), 3, seed=18)
        ),
    ],
)
def test_the_others_go_on(name):
    failpoints.run(CASES[name])


@pytest.mark.thorough
@pytest.mark.parametrize("number", [6, 7, 8])
def test_rank_0_is_lost_while_it_tells_one_that_comes_to_fit_its_state(number):
    """In one of the collectives by which it does so, among them a broadcast with that root."""
    point = f"fit_agrees_anew:collective_begins@0#{number}"
    case = failpoints.join("collective_begins", "root", point, way="fit")
    failpoints.run(case)
