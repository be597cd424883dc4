"""Runs the MPI backend through the suite of all communicators, under mpirun, with 1 to 20 ranks.

`tests/core/mpi_conformance.cc` is the program. Its --huge mode (tensors of more than 2^31 bytes,
2.5 GiB of memory a rank) is for a person to start: see the first lines of the program.
"""

from __future__ import annotations

from pathlib import Path

import mpi
import pytest

pytestmark = pytest.mark.thorough

EXEC = "import os, sys; os.execv(sys.argv[1], sys.argv[1:])"


@pytest.fixture
def program(programs: Path) -> Path:
    return programs / "mpi_conformance"


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_conforms(program: Path, ranks: int):
    job = mpi.run_ranks(ranks, ["-c", EXEC, str(program)], timeout=300)
    assert job.code == 0, str(job)
    for number, rank in enumerate(job.ranks):
        assert f"rank {number} of {ranks} conforms" in rank.out, str(job)
    assert not job.left


def test_conforms_beyond_few_ranks(program: Path):
    """More than 8 ranks gather small tensors by doubling."""
    job = mpi.run_ranks(9, ["-c", EXEC, str(program), "--small"], timeout=300)
    assert job.code == 0, str(job)
    assert all("of 9 conforms" in rank.out for rank in job.ranks), str(job)


@pytest.mark.thorough
def test_conforms_with_many_ranks(program: Path):
    """With more than 17 ranks not all messages of an exchange are under way at once."""
    job = mpi.run_ranks(20, ["-c", EXEC, str(program), "--many"], timeout=300)
    assert job.code == 0, str(job)
    assert all("of 20 conforms" in rank.out for rank in job.ranks), str(job)


def test_a_wait_that_lasts_is_reported_with_the_rank_it_is_for(program: Path):
    short = {"TFHVD_STALL_CHECK_TIME_SECONDS": "1"}
    job = mpi.run_ranks(2, ["-c", EXEC, str(program), "--stall"], env=short)
    assert job.code == 0, str(job)
    assert "s in the MPI barrier for ranks [0]" in job.ranks[1].err, str(job)
    assert job.ranks[1].err.count("has waited") == 1, str(job)
    assert "has waited" not in job.ranks[0].err, str(job)


@pytest.mark.parametrize("begun_by", ["tfhvd", "another package"])
def test_errors_of_mpi_do_not_end_the_process(program: Path, begun_by: str):
    begun = ["--begun"] if begun_by != "tfhvd" else []
    job = mpi.run_ranks(2, ["-c", EXEC, str(program), "--errors", *begun])
    assert job.code == 0, str(job)
    assert all("of 2 conforms" in rank.out for rank in job.ranks), str(job)
    assert not job.left


def test_the_mpirun_of_another_mpi_is_found_out(program: Path):
    """A process that MPICH's launcher says is one of 3, while our MPI sees it alone."""
    job = mpi.run_ranks(1, ["-c", EXEC, str(program)], env={"PMI_SIZE": "3"}, mpirun=False)
    [alone] = job.ranks
    assert alone.code == 1, str(job)
    assert "with 3 processes" in alone.err
    assert "sees 1" in alone.err
    assert "mpirun -np 3" in alone.err
    assert not job.left


def test_ranks_do_not_agree_on_losses_at_the_end(program: Path):
    """Open MPI 5 does so where it reports lost peers; across hosts that hung, or failed."""
    reports = {"OMPI_MCA_mpi_ft_enable": "1", "OMPI_MCA_mpi_ft_verbose": "40"}
    job = mpi.run_ranks(2, ["-c", EXEC, str(program), "--small"], env=reports)
    assert job.code == 0, str(job)
    if "ftagree" not in job.ranks[0].err + job.launcher:
        pytest.skip("this MPI does not report lost peers")
    assert "DONE WITH FINALIZE" not in str(job)
