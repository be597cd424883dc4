"""The environment variables by which a launcher tells a process its place in the job."""

from __future__ import annotations

import os
from collections.abc import Mapping

ADDRESS = "TFHVDRUN_ADDRESS"
TOKEN = "TFHVDRUN_TOKEN"
STANDBY = "TFHVDRUN_STANDBY"  # for an agent: another launcher takes over if this one is killed
MAJORITY = "TFHVDRUN_MAJORITY"  # for an agent: another host takes over if the launcher's fails
RESTARTS = "TFHVD_RESTART_COUNT"  # for the program: how often it has been started again
# For the ranks: the command that says whether their host is about to be taken away, and the seconds
# between two runs of it.
PREEMPTION_COMMAND = "TFHVD_LAUNCH_PREEMPTION_COMMAND"
PREEMPTION_INTERVAL = "TFHVD_LAUNCH_PREEMPTION_INTERVAL"

# A launcher sets one of these to the number of the rank; the first that is set counts.
RANK = "TFHVDRUN_RANK"  # tfhvdrun itself
RANKS = (RANK, "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")


def variable_in(environ: Mapping[str, str]) -> str | None:
    """Returns the variable with a process's rank; None if no launcher has started the process."""
    return next((name for name in RANKS if environ.get(name, "").isdigit()), None)


def rank_of(environ: Mapping[str, str]) -> int:
    """Returns this process's rank, as its launcher says it; 0 without one."""
    variable = variable_in(environ)
    return 0 if variable is None else int(environ[variable])


def own() -> dict[str, str]:
    """Returns the variables of this process."""
    return dict(os.environ)
