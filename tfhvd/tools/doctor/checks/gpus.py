"""Has every rank a separate GPU, and is there NCCL?"""

from __future__ import annotations

from collections.abc import Mapping

from tfhvd.tools.doctor.finding import Finding, failed, passed, warned
from tfhvd.tools.doctor.survey import Survey, hosts_text, ranks_by_host, where
from tfhvd.tools.facts import Facts
from tfhvd.tools.nvml import Gpu


def visible(facts: Facts) -> list[Gpu]:
    """Returns the GPUs that a rank can use, in its order.

    As CUDA has it: what follows on a number that is none of a GPU is not visible either.
    """
    if facts.visible_gpus is None:
        return list(facts.gpus)
    found = []
    for word in facts.visible_gpus.split(","):
        text = word.strip()
        if text.isdigit() and int(text) < len(facts.gpus):
            found.append(facts.gpus[int(text)])
            continue
        named = [gpu for gpu in facts.gpus if text and gpu.uuid.startswith(text)]
        if len(named) != 1:
            break
        found.append(named[0])
    return found


def chosen(facts: Mapping[int, Facts]) -> dict[int, Gpu | None]:
    """Returns the GPU that each rank takes: the one with its number on the host."""
    taken: dict[int, Gpu | None] = {}
    for ranks in ranks_by_host(facts).values():
        for number, rank in enumerate(ranks):
            mine = visible(facts[rank])
            taken[rank] = mine[number % len(mine)] if mine else None
    return taken


def check(survey: Survey) -> list[Finding]:
    """Looks at ranks, drivers and NCCL."""
    facts = survey.facts
    taken = chosen(facts)
    with_gpu = [rank for rank, gpu in taken.items() if gpu is not None]
    if not with_gpu:
        hidden = [rank for rank, each in facts.items() if each.gpus]
        if hidden:
            text = f"{where(facts, hidden)}: CUDA_VISIBLE_DEVICES hides all GPUs"
            return [warned("gpus", text, "unset CUDA_VISIBLE_DEVICES, unless that is meant")]
        return [passed("gpus", "no GPU on any rank: training is on CPUs")]
    findings = _ranks_without(facts, taken) + _shared(facts, taken)
    findings += _differences(facts, taken) + _nccl(facts, with_gpu)
    details = [f"rank {rank}: {gpu.name} {gpu.uuid}" for rank, gpu in taken.items() if gpu]
    first = taken[with_gpu[0]]
    assert first is not None
    text = f"{len(with_gpu)} ranks, each with its own: {first.name}, driver {first.driver}"
    return findings or [passed("gpus", f"{text}, {facts[with_gpu[0]].nccl}", details)]


def _ranks_without(facts: Mapping[int, Facts], taken: Mapping[int, Gpu | None]) -> list[Finding]:
    without = [rank for rank, gpu in taken.items() if gpu is None]
    if not without:
        return []
    text = f"{where(facts, without)}: no GPU, and other ranks have one"
    fix = "nvidia-smi on that host says why; or leave it out of -H"
    return [failed("gpus", text, fix)]


def _shared(facts: Mapping[int, Facts], taken: Mapping[int, Gpu | None]) -> list[Finding]:
    findings = []
    for host, ranks in ranks_by_host(facts).items():
        by_gpu: dict[str, list[int]] = {}
        for rank in ranks:
            gpu = taken[rank]
            if gpu is not None:
                by_gpu.setdefault(gpu.uuid, []).append(rank)
        crowded = [rank for theirs in by_gpu.values() if len(theirs) > 1 for rank in theirs]
        if crowded:
            text = f"{where(facts, crowded)} share {len(by_gpu)} GPU{'s' * (len(by_gpu) > 1)}"
            fix = f"start no more ranks than GPUs: {host}:{len(by_gpu)}"
            findings.append(failed("gpus", f"{text}, and NCCL takes one rank for each", fix))
    return findings


def _differences(facts: Mapping[int, Facts], taken: Mapping[int, Gpu | None]) -> list[Finding]:
    findings = []
    for what, fix in (
        ("driver", "install the same driver on all hosts"),
        ("name", "the slowest sets the pace: give the ranks GPUs of one kind (-H)"),
    ):
        ranks: dict[str, list[int]] = {}
        for rank, gpu in taken.items():
            if gpu is not None:
                ranks.setdefault(getattr(gpu, what), []).append(rank)
        if len(ranks) > 1:
            groups = "; ".join(f"{key} on {where(facts, theirs)}" for key, theirs in ranks.items())
            label = "drivers" if what == "driver" else "GPUs"
            findings.append(warned("gpus", f"{label} differ: {groups}", fix))
    return findings


def _nccl(facts: Mapping[int, Facts], with_gpu: list[int]) -> list[Finding]:
    without = [rank for rank in with_gpu if not facts[rank].has_nccl]
    if without:
        said, _, command = facts[without[0]].nccl.partition(" Type: ")
        text = f"{where(facts, without)}: {said}; tensors on GPUs go through the host, slowly"
        return [warned("gpus", text, command or "pip install nvidia-nccl-cu12")]
    by_version: dict[str, list[int]] = {}
    for rank in with_gpu:
        by_version.setdefault(facts[rank].nccl, []).append(rank)
    if len(by_version) < 2:
        return []
    groups = "; ".join(f"{text} on {where(facts, ranks)}" for text, ranks in by_version.items())
    hosts = list(ranks_by_host(facts))
    fix = f"pip install the same nvidia-nccl-cu12 on {hosts_text(hosts)}"
    return [failed("gpus", f"NCCL differs: {groups}", fix)]
