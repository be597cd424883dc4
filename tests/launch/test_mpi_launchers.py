"""Jobs that something else than tfhvdrun starts."""

from __future__ import annotations

import mpi
import pytest

pytestmark = pytest.mark.thorough

REPORT = """
import tfhvd as hvd

hvd.init()
print(hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size())
"""

# What srun --mpi=pmix leaves of the variables that mpirun sets: PMIx's own, and Slurm's.
AS_SRUN_WITH_PMIX = """
import os

for name in list(os.environ):
    if name.startswith(("OMPI_COMM_WORLD", "OMPI_UNIVERSE", "OMPI_WORLD", "PRTE_")):
        del os.environ[name]
os.environ.update(SLURM_STEP_NUM_TASKS="2", SLURM_PROCID=os.environ["PMIX_RANK"])
"""


def test_srun_with_pmix():
    job = mpi.run_ranks(2, AS_SRUN_WITH_PMIX + REPORT)
    assert job.code == 0, job
    assert [rank.out for rank in job.ranks] == ["0 2 0 2\n", "1 2 1 2\n"], job


def test_mpirun():
    job = mpi.run_ranks(2, REPORT)
    assert job.code == 0, job
    assert [rank.out for rank in job.ranks] == ["0 2 0 2\n", "1 2 1 2\n"], job


def test_no_launcher():
    job = mpi.run_ranks(1, REPORT, mpirun=False)
    assert job.code == 0, job
    assert job.ranks[0].out == "0 1 0 1\n", job
