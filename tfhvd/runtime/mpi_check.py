"""Notices that a job was started by the `mpirun` of another MPI than the one in this process.

Such a launcher does not reach our MPI, which then takes each of the N processes for a job of its
own: N trainings that look like one. The launcher leaves its number of processes in the environment.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class _Launcher:
    name: str
    size: str  # the variable with the number of processes
    also: str = ""  # a variable that must be there too


# The first that applies is the nearest to the process: in a job of Slurm, mpirun adds its own.
_LAUNCHERS = (
    _Launcher("mpirun of Open MPI", "OMPI_COMM_WORLD_SIZE"),
    _Launcher("mpirun of MVAPICH", "MV2_COMM_WORLD_SIZE"),
    _Launcher("mpiexec of MPICH (or srun with PMI)", "PMI_SIZE"),
    # sbatch gives its script the number of tasks too, but no number in a step of several.
    _Launcher("srun", "SLURM_STEP_NUM_TASKS", also="SLURM_PROCID"),
)


def check_launcher(environ: Mapping[str, str], mpi_size: int, mpi: str = "MPI") -> None:
    """Raises where the launcher of this process counts other ranks than MPI does.

    A pure function: nothing is read but its arguments.

    Args:
        environ: The environment of the process.
        mpi_size: The size of the job as MPI says; 1 where MPI was not started.
        mpi: What the MPI of this process calls itself, e.g. "Open MPI 5.0.11".

    Raises:
        RuntimeError: The two differ; the text names both and says what to type.

    Example:
        >>> check_launcher({"OMPI_COMM_WORLD_SIZE": "2"}, mpi_size=2)
    """
    for launcher in _LAUNCHERS:
        value = environ.get(launcher.size, "")
        if not value.isdigit() or (launcher.also and launcher.also not in environ):
            continue
        if int(value) != mpi_size:
            raise RuntimeError(
                f"{launcher.name} started this job, but tfhvd's {mpi} does not see it. "
                f"Received: a job of {mpi_size}. Expected: {launcher.size}={value}. {_ADVICE}"
            )
        return
    rank = environ.get("PMIX_RANK", "")
    if rank.isdigit() and int(rank) >= mpi_size:
        raise RuntimeError(
            f"This process was started as one of several, but tfhvd's {mpi} does not see them. "
            f"Received: a job of {mpi_size}. Expected: one with PMIX_RANK={rank}. {_ADVICE}"
        )


_ADVICE = (
    "The launcher belongs to another MPI than tfhvd was built with. Type `tfhvdrun -np N python "
    "...`, which takes the right one (under Slurm also `srun --mpi=pmix`); or build tfhvd for the "
    "other: MPICC=/path/to/mpicc pip install --force-reinstall --no-deps --no-cache-dir SOURCE"
)
