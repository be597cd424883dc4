"""Which rank the others wait for, and what it does meanwhile that they do not. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tfhvd.profiling.breakdown import Step
from tfhvd.profiling.slow_links import SlowLink
from tfhvd.profiling.trace import Trace

HELD = ("quota", "page faults", "preempted")  # causes that keep a rank from running, in any part
OWN = ("input", "garbage", "computing", "other")  # what a rank does by itself

_LEAST = 0.05  # of a step: less is no straggler
_MORE = 2.0  # times what any other rank costs; else they wait for each other in turn
_THROTTLED = 0.1  # of the time
_UNSEEN = ("computing", "other")  # of what it consists is not recorded
_FAULTS = 1.0  # a step, that read the disk
_STEADY = 0.75  # of the steps have a noticeable part of what an average step has
_NOTICED = 0.25  # of that


@dataclass(frozen=True)
class Straggler:
    """The rank that costs most.

    Attributes:
        rank: its number.
        seconds: a step for which the others wait for it, each, on average.
        share: of a step.
        cause: "input", "garbage", "quota", "page faults", "preempted", "computing", "other" or
            "link"; "at times" where only a few steps have more of the last two parts; "unseen"
            where only collectives were recorded; "" if it does nothing that the others do not:
            then it is a little late now and then.
        more: seconds a step that the cause takes more than on the other ranks.

    Of a link it is the first rank of the host, and the seconds are what communication would take
    less if its link were as fast as the others'.
    """

    rank: int
    seconds: float
    share: float
    cause: str
    more: float


def find(
    steps: Mapping[int, Sequence[Step]], traces: Mapping[int, Trace], link: SlowLink | None = None
) -> Straggler | None:
    """Finds it; None if no rank keeps the others for a noticeable part of a step.

    Args:
        steps: by rank, as `parts.divide` gives them.
        traces: what they were made of.
        link: as `links.find` gives it.
    """
    if len(steps) < 2:
        return None
    found = [_late(steps, traces), _behind(link, steps, traces)]
    return max((each for each in found if each), key=lambda each: each.share, default=None)


def _behind(
    link: SlowLink | None, steps: Mapping[int, Sequence[Step]], traces: Mapping[int, Trace]
) -> Straggler | None:
    """The host whose link is slow, if this host is certain."""
    if link is None or link.host is None:
        return None
    rank = min(rank for rank, trace in traces.items() if trace.host == link.host)
    takes, whole = (
        statistics.fmean(_per_step(own, part, len(own)) for own in steps.values() if own)
        for part in ("communication", "whole")
    )
    more = takes * (1 - link.rate / link.usual)
    return Straggler(rank, more, more / whole, "link", more) if more > _LEAST * whole else None


def _late(steps: Mapping[int, Sequence[Step]], traces: Mapping[int, Trace]) -> Straggler | None:
    """The rank that calls its collectives later than the others."""
    count = min(map(len, steps.values()))
    if count == 0:
        return None
    whole = statistics.fmean(_per_step(steps[rank], "whole", count) for rank in steps)
    kept = {rank: [_waits_for(rank, at_once) for at_once in _at_once(steps)] for rank in steps}
    # A rank that is late in every step is found though another one is very late once.
    found = (_most(kept, average, whole) for average in (statistics.fmean, statistics.median))
    rank = next((each for each in found if each is not None), None)
    if rank is None:
        return None
    seconds = statistics.fmean(kept[rank])
    more = {}
    for part in OWN:
        usual = [_per_step(steps[other], part, count) for other in steps if other != rank]
        more[part] = _per_step(steps[rank], part, count) - statistics.median(usual)
    cause = max(more, key=lambda part: more[part])
    told, longer, enough = cause, more[cause], seconds / 2
    # What keeps a program from running does so in whatever part it is in just then.
    held = sum(max(0.0, more[part]) for part in _UNSEEN)
    reason = _kept_from_running(traces[rank], whole * count, held * count)
    if cause in _UNSEEN and reason and held >= enough:
        told, longer = reason, held
    elif longer < enough:
        told, longer = "", 0.0
    elif traces[rank].only_collectives:
        told = "unseen"
    elif cause in _UNSEEN and not _steadily(rank, cause, longer, steps):
        told = "at times"
    return Straggler(rank, seconds, seconds / whole, told, longer)


def _at_once(steps: Mapping[int, Sequence[Step]]) -> Iterator[dict[int, Step]]:
    """Of each step those of all ranks, by rank."""
    for at_once in zip(*steps.values()):
        yield dict(zip(steps, at_once))


def _waits_for(rank: int, at_once: Mapping[int, Step]) -> float:
    """How long the others wait for a rank in a step, in seconds, each, on average."""
    return statistics.fmean(
        step.waits_for.get(rank, 0.0) for other, step in at_once.items() if other != rank
    )


def _most(
    kept: Mapping[int, Sequence[float]], average: Callable[[Sequence[float]], float], whole: float
) -> int | None:
    """The rank that keeps the others much longer than any other does; None if none does.

    Args:
        kept: seconds in each step, by rank.
        average: of the steps.
        whole: seconds that a step takes.
    """
    costs = {rank: average(seconds) for rank, seconds in kept.items()}
    rank = max(costs, key=lambda each: costs[each])
    others = max(cost for other, cost in costs.items() if other != rank)
    return rank if costs[rank] >= max(_LEAST * whole, _MORE * others) else None


def _kept_from_running(trace: Trace, duration: float, more: float) -> str:
    """What of the machine keeps the program from running; "" if that is not known.

    Args:
        trace: of the rank.
        duration: of all steps, in seconds.
        more: how much longer all of them take.
    """
    if trace.only_collectives:
        return ""
    if trace.throttled > _THROTTLED * duration:
        return "quota"
    if trace.faults > _FAULTS * max(1, len(trace.steps)):
        return "page faults"
    if trace.preempted > more / 2:
        return "preempted"
    return ""


def _steadily(rank: int, part: str, more: float, steps: Mapping[int, Sequence[Step]]) -> bool:
    """Whether a part takes longer in most steps, as if a program does more in each step."""
    longer = []
    for at_once in _at_once(steps):
        usual = [step.parts[part] for other, step in at_once.items() if other != rank]
        longer.append(at_once[rank].parts[part] - statistics.median(usual))
    return sum(each > _NOTICED * more for each in longer) >= _STEADY * len(longer)


def _per_step(steps: Sequence[Step], part: str, count: int) -> float:
    total = sum(step.whole if part == "whole" else step.parts[part] for step in steps)
    return total / count
