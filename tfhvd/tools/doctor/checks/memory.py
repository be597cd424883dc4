"""Is there memory for the ranks of each host, also in /dev/shm?"""

from __future__ import annotations

from tfhvd.tools.doctor.finding import Finding, passed, warned
from tfhvd.tools.doctor.survey import Survey, ranks_by_host

_OF_A_RANK = 1 << 30  # bytes: TensorFlow with a small model
_SHM_OF_A_RANK = 32 << 20  # bytes: Open MPI and NCCL talk through files there
_GIB = 1 << 30


def check(survey: Survey) -> list[Finding]:
    """Looks at each host alone."""
    findings = []
    texts = []
    for host, ranks in ranks_by_host(survey.facts).items():
        memory = survey.facts[ranks[0]].memory
        bounds = [amount for amount in (memory.available, memory.limit) if amount]
        usable = min(bounds, default=0)
        limited = memory.limit is not None and memory.limit == usable
        if usable and usable < _OF_A_RANK * len(ranks):
            whose = "the container's limit is" if limited else "free are"
            findings.append(
                warned(
                    "memory",
                    f"host {host} has little memory for {len(ranks)} ranks: {whose} {_gib(usable)}",
                    "give the container more (docker run --memory, the batch system's --mem)"
                    if limited
                    else f"start fewer ranks there, or end what uses the memory: ssh {host} top",
                )
            )
        needed = _SHM_OF_A_RANK * len(ranks)
        if len(ranks) > 1 and memory.shm_free < needed:
            findings.append(
                warned(
                    "memory",
                    f"host {host} has {_mib(memory.shm_free)} free in /dev/shm, of "
                    f"{_mib(memory.shm_size)}; MPI and NCCL may need {_mib(needed)} for "
                    f"{len(ranks)} ranks",
                    "docker run --shm-size=1g (in Kubernetes an emptyDir of medium Memory); else "
                    "mount -o remount,size=1g /dev/shm",
                )
            )
        text = f"host {host}: {_gib(memory.available)} free of {_gib(memory.total)}"
        if memory.limit is not None:
            text += f", limit of the container {_gib(memory.limit)}"
        texts.append(f"{text}; /dev/shm {_gib(memory.shm_free)} free")
    return findings or [passed("memory", texts[0], texts[1:])]


def _gib(amount: int) -> str:
    return f"{amount / _GIB:.1f} GiB"


def _mib(amount: int) -> str:
    return f"{amount / (1 << 20):.0f} MiB"
