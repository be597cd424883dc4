"""Which part of its host's cores a rank takes, and the variables that say so to its libraries.

Libraries start as many threads as there are cores, in each rank: with N ranks, N times too many.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from tfhvd.system import cgroups

SHARE = "TFHVDRUN_SHARE_CORES"  # in an agent's environment: its rank takes its share

_THREADS = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS")
# This pool's threads wait rather than compute: a compiled function waits on one for the other
# ranks, and what these wait for in turn needs another.
_WAITING = "TF_NUM_INTEROP_THREADS"
VARIABLES = (*_THREADS, _WAITING)

_LOCAL_SIZES = ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "MV2_COMM_WORLD_LOCAL_SIZE")


@dataclass(frozen=True)
class Cores:
    """What the share depends on.

    Attributes:
        own: cores that this rank may run on.
        host: cores that all ranks of the host may run on.
        quota: how many of them the container may keep busy; None where there is no limit.
        ranks: the ranks of this host; 0 if unknown.
    """

    own: int
    host: int
    quota: float | None = None
    ranks: int = 0


def share(cores: Cores) -> int | None:
    """How many cores a rank takes; None where it may take all.

    Example: ``share(Cores(own=8, host=8, ranks=2)) == 4``; bound to 2 of them it is 2.
    """
    host = max(1, cores.host)
    # Ranks that mpirun has bound to cores share them with those that are bound to the same ones.
    beside = max(1, round(cores.ranks * cores.own / host))
    usable = float(cores.own)
    if cores.quota is not None:
        usable = min(usable, cores.quota * cores.own / host)
    part = max(1, int(usable / beside))
    return part if cores.ranks and part < cores.own else None


def variables(part: int | None, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables to set for a rank that takes ``part`` cores: those that nobody has set."""
    if part is None:
        return {}
    wanted = {**dict.fromkeys(_THREADS, str(part)), _WAITING: str(max(2, part))}
    return {name: value for name, value in wanted.items() if not environ.get(name)}


def share_text(host: str, part: int) -> str:
    """What a user is told of it; "" where a rank takes all."""
    if not part:
        return ""
    text = f"tfhvdrun: each rank on host {host} takes {part} of its cores, unless one of "
    return text + f"{', '.join(VARIABLES)} says otherwise (off: --no-share-cores)"


def measure(environ: Mapping[str, str]) -> Cores:
    """Looks at this process, which mpirun has started, and at its container."""
    own = len(os.sched_getaffinity(0))
    try:
        host = len(os.sched_getaffinity(os.getppid()))
    except OSError:
        host = own
    ranks = next((environ[name] for name in _LOCAL_SIZES if environ.get(name)), "")
    return Cores(own, max(own, host), quota(), int(ranks) if ranks.isdigit() else 0)


def quota() -> float | None:
    """How many cores the container lets this process keep busy; None where it sets no limit."""
    try:
        groups = cgroups.OWN.read_text(encoding="utf-8")
    except OSError:
        return None
    found = []
    for path in cgroups.files_of(groups, cgroups.CPU_LIMIT):
        try:
            found.append(read_limit([file.read_text(encoding="ascii") for file in path]))
        except (OSError, ValueError):
            continue
    return min((limit for limit in found if limit is not None), default=None)


def read_limit(texts: list[str]) -> float | None:
    """Cores: ``read_limit(["150000 100000"]) == 1.5``, and None for "max" or a quota of -1."""
    words = " ".join(texts).split()
    if len(words) != 2 or not all(re.fullmatch(r"[0-9]+", word) for word in words):
        return None
    return int(words[0]) / int(words[1])
