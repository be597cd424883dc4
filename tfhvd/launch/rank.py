"""Which rank this process is, before it has joined the job."""

from __future__ import annotations

from collections.abc import Mapping

from tfhvd.watch import arrivals

# Where tfhvdrun itself has started the ranks.
RANK = arrivals.RANK


def rank_of(environ: Mapping[str, str]) -> int:
    """This process's rank, as the launcher of the job says it."""
    variable = arrivals.variable_in(environ)
    return 0 if variable is None else int(environ[variable])
