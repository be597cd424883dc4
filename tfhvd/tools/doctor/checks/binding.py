"""Have the ranks of each host separate cores, and as many threads as these cores?"""

from __future__ import annotations

from collections.abc import Mapping

from tfhvd.system.formatting import ranks_text
from tfhvd.tools.doctor.finding import Finding, passed, warned
from tfhvd.tools.doctor.survey import Survey, ranks_by_host
from tfhvd.tools.facts import Facts

_INTRA = "TF_NUM_INTRAOP_THREADS"


def check(survey: Survey) -> list[Finding]:
    """Looks at each host alone."""
    findings = []
    texts = []
    for host, ranks in ranks_by_host(survey.facts).items():
        theirs = {rank: survey.facts[rank] for rank in ranks}
        found = _of_host(host, theirs)
        findings += found
        cores = {core for each in theirs.values() for core in each.cores.allowed}
        quota = theirs[ranks[0]].cores.quota
        limited = "" if quota is None else f", of which the container may use {quota:g}"
        count = f"{len(ranks)} rank{'s' * (len(ranks) > 1)}"
        texts.append(f"host {host}: {count} on {_cores_text(len(cores))}{limited}")
    return findings or [passed("cores", texts[0], texts[1:])]


def _of_host(host: str, facts: Mapping[int, Facts]) -> list[Finding]:
    crowded = _sharing_one_core(facts)
    cores = {core for each in facts.values() for core in each.cores.allowed}
    usable = float(len(cores))
    quotas = [each.cores.quota for each in facts.values() if each.cores.quota is not None]
    if quotas:
        usable = min(usable, *quotas)
    if crowded and len(cores) == 1:
        return [_too_many(host, len(facts), usable)]
    findings = [
        warned(
            "cores",
            f"{ranks_text(ranks)} of host {host} are bound to one core ({core}) and take turns",
            "tfhvdrun without --binding-args and mpirun with --bind-to none bind no rank; or start "
            f"no more ranks than there are cores: {host}:{max(1, int(usable))}",
        )
        for core, ranks in crowded.items()
    ]
    if not findings and len(facts) > usable:
        findings.append(_too_many(host, len(facts), usable))
    return findings or _threads(host, facts, usable)


def _too_many(host: str, ranks: int, usable: float) -> Finding:
    return warned(
        "cores",
        f"host {host} has {ranks} ranks on {_cores_text(usable)}: they take turns",
        f"start no more ranks than cores: {host}:{max(1, int(usable))}; or give the container, or "
        "the job of the batch system, more of them",
    )


def _sharing_one_core(facts: Mapping[int, Facts]) -> dict[int, list[int]]:
    """Ranks that may run on one core only, by that core, if several ranks share it."""
    ranks: dict[int, list[int]] = {}
    for rank, each in facts.items():
        if len(each.cores.allowed) == 1:
            ranks.setdefault(each.cores.allowed[0], []).append(rank)
    return {core: theirs for core, theirs in ranks.items() if len(theirs) > 1}


def _threads(host: str, facts: Mapping[int, Facts], usable: float) -> list[Finding]:
    """TensorFlow starts as many threads as a rank has cores, unless a variable says otherwise."""
    total = 0
    for each in facts.values():
        said = each.cores.threads.get(_INTRA, "")
        total += int(said) if said.isdigit() and int(said) else len(each.cores.allowed)
    if len(facts) == 1 or total <= max(usable, len(facts)):
        return []
    share = max(1, int(usable / len(facts)))
    return [
        warned(
            "cores",
            f"the ranks of host {host} start {total} threads to compute with, on "
            f"{_cores_text(usable)}",
            f"leave out --no-share-cores, or set {_INTRA}={share} and OMP_NUM_THREADS={share}",
        )
    ]


def _cores_text(count: float) -> str:
    return f"{count:g} core{'s' * (count != 1)}"
