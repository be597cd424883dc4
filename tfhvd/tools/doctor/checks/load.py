"""Is each host free for the job, or does something else keep its cores busy?"""

from __future__ import annotations

from tfhvd.tools.doctor.finding import Finding, passed, warned
from tfhvd.tools.doctor.survey import Survey, ranks_by_host


def check(survey: Survey) -> list[Finding]:
    """Compares the load average of the last minute with the cores of each host."""
    texts = []
    busy = {}
    for host, ranks in ranks_by_host(survey.facts).items():
        cores = survey.facts[ranks[0]].cores
        # The doctor's own processes come on top of it: the least that a rank has seen counts.
        load = min(survey.facts[rank].cores.load for rank in ranks)
        text = f"host {host}: load {load:.1f} on {cores.online} core{'s' * (cores.online != 1)}"
        texts.append(text)
        if cores.online and load >= cores.online:
            busy[host] = text
    if not busy:
        return [passed("load", texts[0], texts[1:])]
    return [
        warned(
            "load",
            f"{'; '.join(busy.values())}: something else keeps them busy, and the slowest rank "
            "sets the pace",
            "wait for it, end it, or take other hosts. To see what it is, type: ssh "
            f"{next(iter(busy))} top",
            texts,
        )
    ]
