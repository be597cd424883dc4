"""Which part of its host's cores a rank takes."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
from launching import launch

from tfhvd.system.cpu_affinity import VARIABLES, Cores, measure, read_limit, share, variables


@pytest.mark.parametrize(
    ("cores", "part"),
    [
        (Cores(own=8, host=8, ranks=2), 4),
        (Cores(own=8, host=8, ranks=3), 2),
        (Cores(own=2, host=2, ranks=8), 1),
        (Cores(own=8, host=8, ranks=1), None),
        (Cores(own=8, host=8, ranks=0), None),
        (Cores(own=1, host=1, ranks=4), None),
        (Cores(own=64, host=64, quota=4.0, ranks=2), 2),
        (Cores(own=64, host=64, quota=2.5, ranks=1), 2),
        (Cores(own=64, host=64, quota=0.5, ranks=2), 1),
        (Cores(own=8, host=8, quota=16.0, ranks=1), None),
        # Bound by mpirun: to a core each, to one of two sockets.
        (Cores(own=1, host=8, ranks=8), None),
        (Cores(own=8, host=16, ranks=2), None),
        (Cores(own=8, host=16, ranks=4), 4),
    ],
    ids=str,
)
def test_the_share(cores, part):
    assert share(cores) == part


def test_the_variables_that_nobody_has_set():
    assert variables(None, {}) == {}
    assert variables(4, {}) == dict.fromkeys(VARIABLES, "4")
    assert variables(1, {"OMP_NUM_THREADS": "3", "TF_NUM_INTRAOP_THREADS": ""}) == {
        "TF_NUM_INTRAOP_THREADS": "1",
        "TF_NUM_INTEROP_THREADS": "2",
    }


def test_limits_of_containers():
    assert read_limit(["150000 100000\n"]) == 1.5
    assert read_limit(["max 100000\n"]) is None
    assert read_limit(["400000\n", "100000\n"]) == 4
    assert read_limit(["-1\n", "100000\n"]) is None


def test_ranks_take_their_shares(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    here = measure({})
    part = share(replace(here, host=here.own, ranks=2))
    show = [sys.executable, "-c", f"import os; print(*map(os.environ.get, {VARIABLES}))"]
    result = launch("-np", 2, "-v", *show)
    expected = [str(variables(part, {}).get(name)) for name in VARIABLES]
    assert sorted(result.out.splitlines()) == [f"[{rank}] " + " ".join(expected) for rank in (0, 1)]
    said = [line for line in result.own_lines if "of its cores" in line]
    assert len(said) == (part is not None)
    result = launch("-np", 2, "-v", "--no-share-cores", *show)
    assert sorted(result.out.splitlines()) == [f"[{rank}] None None None" for rank in (0, 1)]
    assert "of its cores" not in result.err
