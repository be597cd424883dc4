"""A launcher that belongs to another MPI is noticed; a right one, or none, passes."""

from __future__ import annotations

import pytest
import troubleshooting

from tfhvd.runtime.mpi_check import check_launcher

OPEN_MPI = {"OMPI_COMM_WORLD_SIZE": "4", "PMIX_RANK": "3"}
MPICH = {"PMI_SIZE": "4", "PMI_RANK": "3"}
SRUN_PMIX = {"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "3", "PMIX_RANK": "3"}


@pytest.mark.parametrize("environ", [OPEN_MPI, MPICH, SRUN_PMIX])
def test_agreement_passes(environ):
    check_launcher(environ, mpi_size=4)


def test_no_launcher_passes():
    check_launcher({"PATH": "/usr/bin"}, mpi_size=1)


@pytest.mark.parametrize(
    ("environ", "variable"),
    [
        (OPEN_MPI, "OMPI_COMM_WORLD_SIZE=4"),
        (MPICH, "PMI_SIZE=4"),
        (SRUN_PMIX, "SLURM_STEP_NUM_TASKS=4"),
        ({"MV2_COMM_WORLD_SIZE": "4"}, "MV2_COMM_WORLD_SIZE=4"),
    ],
)
def test_jobs_of_size_one_are_noticed(environ, variable):
    with pytest.raises(RuntimeError) as caught:
        check_launcher(environ, mpi_size=1, mpi="Open MPI 5.0.11")
    text = str(caught.value)
    for part in (variable, "Open MPI 5.0.11", "job of 1", "tfhvdrun -np", "MPICC="):
        assert part in text
    troubleshooting.check("mpirun belongs to another MPI", text)


def test_a_rank_without_a_size_is_noticed():
    with pytest.raises(RuntimeError, match="PMIX_RANK=3"):
        check_launcher({"PMIX_RANK": "3"}, mpi_size=1)
    check_launcher({"PMIX_RANK": "3"}, mpi_size=4)


def test_mpirun_inside_a_job_of_slurm_counts():
    # mpirun starts its daemons with srun: two hosts, so two tasks, with eight ranks in them.
    environ = {"SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "1", "OMPI_COMM_WORLD_SIZE": "8"}
    check_launcher(environ, mpi_size=8)
    with pytest.raises(RuntimeError, match="OMPI_COMM_WORLD_SIZE=8"):
        check_launcher(environ, mpi_size=2)


def test_a_batch_script_may_run_one_process():
    check_launcher({"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4", "SLURM_PROCID": "0"}, mpi_size=1)


def test_a_value_that_is_no_number_says_nothing():
    check_launcher({"PMI_SIZE": ""}, mpi_size=1)
