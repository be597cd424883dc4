"""A sample of the faults of `faults`; tests/long/faults.py runs them all, and many at random."""

from __future__ import annotations

import faults
import pytest

# One of each deed and layout, on rank 0 and on a host's first, compiled and not.
SAMPLE = [
    faults.Fault("shm", "killed", 0, "plain"),
    faults.Fault("shm", "stopped", 1, "compiled"),
    faults.Fault("shm", "no memory", 1, "plain"),
    faults.Fault("mpi", "stopped", 0, "plain"),
    faults.Fault("mpi", "no memory", 0, "plain"),
    faults.Fault("hosts", "killed", 2, "plain"),
    faults.Fault("hosts", "stopped", 2, "plain"),
    faults.Fault("hosts", "raises", 1, "compiled"),
]


@pytest.mark.parametrize("fault", SAMPLE, ids=str)
def test_every_survivor_names_the_rank_and_ends(fault: faults.Fault) -> None:
    job = faults.run(fault)
    assert not job.left, job
