"""The share of its host's cores that a rank takes, and the variables that tell its libraries.

Without these variables, libraries start as many threads as there are cores in each rank: with N
ranks, N times too many.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from tfhvd.system import cgroups

SHARE = "TFHVDRUN_SHARE_CORES"  # in an agent's environment: its rank takes its share

_THREADS = ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS")
# The threads of this pool mostly wait. A compiled function that waits for the other ranks occupies
# one thread, and the work for which the other ranks wait needs a second one.
_WAITING = "TF_NUM_INTEROP_THREADS"
VARIABLES = (*_THREADS, _WAITING)

_LOCAL_SIZES = ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "MV2_COMM_WORLD_LOCAL_SIZE")


@dataclass(frozen=True)
class Cores:
    """The numbers from which `share` follows.

    Attributes:
        own: the number of cores on which this rank may run.
        host: the number of cores on which all ranks of the host may run.
        quota: how many cores the container may keep busy; None without a limit.
        ranks: the number of ranks on this host; 0 if unknown.
    """

    own: int
    host: int
    quota: float | None = None
    ranks: int = 0


def share(cores: Cores) -> int | None:
    """Returns how many cores a rank takes; None if it may take all.

    Example: ``share(Cores(own=8, host=8, ranks=2)) == 4``; for a rank bound to 2 cores it is 2.
    """
    host = max(1, cores.host)
    # Ranks that mpirun has bound to cores share them only with ranks on the same cores.
    beside = max(1, round(cores.ranks * cores.own / host))
    usable = float(cores.own)
    if cores.quota is not None:
        usable = min(usable, cores.quota * cores.own / host)
    part = max(1, int(usable / beside))
    return part if cores.ranks and part < cores.own else None


def variables(part: int | None, environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables for a rank that takes ``part`` cores, without those that are set."""
    if part is None:
        return {}
    wanted = {**dict.fromkeys(_THREADS, str(part)), _WAITING: str(max(2, part))}
    return {name: value for name, value in wanted.items() if not environ.get(name)}


def share_text(host: str, part: int) -> str:
    """Returns a line about the share for the user; "" if a rank takes all cores."""
    if not part:
        return ""
    text = f"tfhvdrun: each rank on host {host} takes {part} of its cores, unless one of "
    return text + f"{', '.join(VARIABLES)} says otherwise (off: --no-share-cores)"


def measure(environ: Mapping[str, str]) -> Cores:
    """Reads the cores of this process, which mpirun has started, and of its container."""
    own = len(os.sched_getaffinity(0))
    try:
        host = len(os.sched_getaffinity(os.getppid()))
    except OSError:
        host = own
    ranks = next((environ[name] for name in _LOCAL_SIZES if environ.get(name)), "")
    return Cores(own, max(own, host), quota(), int(ranks) if ranks.isdigit() else 0)


def quota() -> float | None:
    """Returns how many cores the container lets this process keep busy; None without a limit."""
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
    """Reads a number of cores: ``read_limit(["150000 100000"]) == 1.5``; None for "max" or -1."""
    words = " ".join(texts).split()
    if len(words) != 2 or not all(re.fullmatch(r"[0-9]+", word) for word in words):
        return None
    return int(words[0]) / int(words[1])
