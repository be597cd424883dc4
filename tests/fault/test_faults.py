"""A sample of the faults of `faults`; tests/long/faults.py runs them all, and many at random."""

from __future__ import annotations

from typing import Any

import faults
import network
import pytest

# Each deed and each layout, on rank 0 and on a host's first, compiled and not.
SAMPLE = [
    faults.Fault("shm", "killed", 0, "plain"),
]
MORE = [
    faults.Fault("shm", "stopped", 1, "compiled"),
    faults.Fault("mpi", "zombie", 1, "plain"),
    faults.Fault("mpi", "no memory", 0, "plain"),
    faults.Fault("mpi", "stopped", 0, faults.UNCAUGHT),
    faults.Fault("mpi", "raises", 1, "compiled"),
    faults.Fault("shm", "raises", 0, "plain"),
    faults.Fault("network-3", faults.CUT_OFF, 0, "compiled"),
    faults.Fault("four", "no memory", 3, "compiled"),
    faults.Fault("hosts", "killed", 2, "plain"),
    faults.Fault("hosts", "stopped", 2, "plain"),
    faults.Fault("hosts", "raises", 1, "compiled"),
    *(faults.Fault(layout, faults.CUT_OFF, 2, "plain") for layout in faults.NETWORKS),
    faults.Fault("network-3", "killed", 2, "compiled"),
]


def parameter(fault: faults.Fault) -> Any:
    marks = [pytest.mark.thorough] if fault in MORE else []
    if fault.layout in faults.NETWORKS and not network.available():
        marks.append(pytest.mark.skip(reason="needs root's right to make network namespaces"))
    return pytest.param(fault, marks=marks, id=str(fault))


@pytest.mark.parametrize("fault", list(map(parameter, [*SAMPLE, *MORE])))
def test_every_survivor_names_the_rank_and_ends(fault: faults.Fault) -> None:
    faults.run(fault)
