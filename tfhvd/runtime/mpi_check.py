"""check_launcher: detects that the launcher of a job belongs to another MPI than this process.

The MPI of this process then does not know of the launcher, and each of the N processes becomes a
separate job: N trainings that look like one. The check compares the number of processes that the
launcher has put into the environment.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class _Launcher:
    name: str
    size: str  # the variable with the number of processes
    also: str = ""  # another variable that must exist


# The first match is the launcher nearest to the process: in a job of Slurm, mpirun adds variables.
_LAUNCHERS = (
    _Launcher("mpirun of Open MPI", "OMPI_COMM_WORLD_SIZE"),
    _Launcher("mpirun of MVAPICH", "MV2_COMM_WORLD_SIZE"),
    _Launcher("mpiexec of MPICH (or srun with PMI)", "PMI_SIZE"),
    # The script of sbatch has SLURM_NTASKS and SLURM_PROCID, too, but no SLURM_STEP_NUM_TASKS.
    _Launcher("srun", "SLURM_STEP_NUM_TASKS", also="SLURM_PROCID"),
)


def check_launcher(environ: Mapping[str, str], mpi_size: int, mpi: str = "MPI") -> None:
    """Raises an error if the launcher of this process counts other ranks than MPI does.

    It is a pure function of its arguments.

    Args:
        environ: the environment of the process.
        mpi_size: the size of the job by MPI; 1 if MPI was not started.
        mpi: the name of the MPI of this process, such as "Open MPI 5.0.11".

    Raises:
        RuntimeError: if the two differ; the text names both and says what to type.

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
