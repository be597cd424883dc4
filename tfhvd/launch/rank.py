"""Which rank this process is, before it has joined the job."""

from __future__ import annotations

from collections.abc import Mapping

# Where tfhvdrun itself has started the ranks.
RANK = "TFHVDRUN_RANK"


def rank_of(environ: Mapping[str, str]) -> int:
    """This process's rank, as the launcher of the job says it."""
    for name in (RANK, "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"):
        if environ.get(name, "").isdigit():
            return int(environ[name])
    return 0
