"""The report in words: the parts of the steps' time, the slow rank, and what to do."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tfhvd.profiling import clock_offsets, slow_links, straggler
from tfhvd.profiling.breakdown import PARTS, Step, divide
from tfhvd.profiling.link_speeds import bits
from tfhvd.profiling.slow_links import SlowLink
from tfhvd.profiling.straggler import Straggler
from tfhvd.profiling.trace import Meeting, Trace

_MOST = 8  # ranks that have a line
_NOTICEABLE = 0.15  # of a step: what is worth advice
_SMALL = 64 * 1024  # bytes a collective, or a call
_RECORDED = ("waiting", "overhead", "communication", "other")  # of collectives alone

# What makes less of communication.
_SEND_LESS = "Larger batches per rank, backward_passes_per_step, or compression send less."
_GROUP = (
    "The collectives are small: pass many tensors to one grouped_allreduce, or have the tape or "
    "the optimizer reduce gradients."
)
_FUSE_MORE = (
    "Tensors of one group travel in many small calls: raise TFHVD_FUSION_THRESHOLD (by default it "
    "is 128 MiB), or give a group tensors of one type."
)
_MEND_LINK = (
    "Look at the host's network card (ethtool INTERFACE), its cable and its port of the switch, "
    "and at what else is sent; or leave the host out. `tfhvd doctor` measures all links."
)
# What the straggler does, and what to do about it.
_CAUSES = {
    "input": (
        "waits for its input",
        "Read and prepare its data faster: more parallel calls, a cache, prefetching, smaller "
        "elements, or another disk.",
    ),
    "garbage": (
        "looks for garbage (Python's collector)",
        "Call gc.freeze() before training, or gc.disable() and collect at the end of each epoch.",
    ),
    "computing": (
        "computes",
        "Give it as much to compute as the others, or look what else runs on its host.",
    ),
    "quota": (
        "is kept from running by its CPU quota",
        "Give its container more processors.",
    ),
    "page faults": (
        "reads memory back from the disk",
        "Its host lacks memory: use smaller batches, or fewer processes there.",
    ),
    "preempted": (
        "is kept from running by what else runs on its host",
        "Look at top there: what else needs processors, and the `st` of a virtual machine whose "
        "own host is busy. Give the job that host's processors alone, or start fewer ranks there.",
    ),
    "at times": (
        "takes longer in a few steps only",
        "Look at what it does only then, such as saving and logging, and what else runs on its "
        "host.",
    ),
    "other": (
        "is in Python between the steps",
        "Look at its callbacks and logging: what only one rank does, the others wait for.",
    ),
    "unseen": (
        "computes, reads its input or is in Python",
        "A timeline does not tell which of these: hvd.profile(steps=20) in the program does.",
    ),
    "": ("is late now and then", "Compare what else runs on its host."),
}


@dataclass(frozen=True)
class Report:
    """The parts of some steps' time.

    Attributes:
        steps: by rank, each step's parts.
        straggler: the rank that the others wait for; None if there is none.
        clock_error: seconds by which times of two hosts may be off.
        collectives: a step, on average.
        bytes: of a collective, on average.
        tensors: a step, on average.
        calls: of shared memory, MPI or NCCL a step, on average: small tensors share one.
        full_call: bytes from which on a call is full.
        link: between hosts, that is much slower than the others; None if none is known.
        only_collectives: whether nothing else was recorded; "other" is all the rest of a step then.
        traces: what it was made of, by rank.
    """

    steps: dict[int, list[Step]]
    straggler: Straggler | None
    clock_error: float
    collectives: float
    bytes: float
    tensors: float = 0.0
    calls: float = 0.0
    full_call: int = 1 << 20
    link: SlowLink | None = None
    only_collectives: bool = False
    traces: Mapping[int, Trace] = field(default_factory=dict, repr=False)

    def seconds(self, rank: int, part: str) -> float:
        """How long a part takes on a rank, a step on average; "whole" is the step.

        Example:
            >>> report.seconds(0, "computing") / report.seconds(0, "whole")
        """
        values = [_part(step, part) for step in self.steps[rank]]
        return statistics.fmean(values) if values else 0.0

    def parts(self) -> tuple[str, ...]:
        """The parts of which something was recorded."""
        return _RECORDED if self.only_collectives else PARTS

    def lines(self, *, each_step: bool = False) -> list[str]:
        """Returns the report for a terminal.

        Args:
            each_step: whether it has, before what follows from them, the parts of every step.
        """
        count = max(map(len, self.steps.values()), default=0)
        ranks = sorted(self.steps)
        text = [f"{count} steps of {len(ranks)} rank{'s' if len(ranks) > 1 else ''}, in ms a step:"]
        shown = self.parts()
        heads = "".join(f"{name:>14}" for name in ("step", *shown))
        text.append(f"rank  {heads}{'waits for':>11}")
        shown = ("whole", *shown)
        for rank in ranks[:_MOST]:
            averages = (self.seconds(rank, part) for part in shown)
            text.append(_row(rank, averages, self.steps[rank]))
        if len(ranks) > _MOST:
            text.append(f"and {len(ranks) - _MOST} more ranks")
        if each_step:
            text += self._each_step(ranks[:_MOST], shown)
        if self.collectives:
            text.append(self._fusion())
        if 0 < self.clock_error < math.inf:
            text.append(f"The hosts' clocks were compared to {1e3 * self.clock_error:.3f} ms.")
        return [*text, *self.advice()]

    def _each_step(self, ranks: list[int], shown: tuple[str, ...]) -> list[str]:
        """Every step by itself, below the same heads of columns."""
        text = []
        for number, steps in enumerate(itertools.zip_longest(*(self.steps[r] for r in ranks)), 1):
            text.append(f"step {number}:")
            made = [(rank, step) for rank, step in zip(ranks, steps) if step is not None]
            text += [_row(r, (_part(step, part) for part in shown), [step]) for r, step in made]
        return text

    def _fusion(self) -> str:
        """How many tensors share a call, and how full it is."""
        text = f"{self.collectives:.1f} collectives a step, of {self.bytes / 1024:.1f} KiB each"
        if not self.calls:
            return text
        text += (
            f": {self.tensors:.1f} tensors in {self.calls:.1f} calls; a call has "
            f"{self.tensors / self.calls:.1f} tensors and {self._bytes_of_call() / 1024:.1f} KiB"
        )
        if not self.full_call:  # each tensor travels alone
            return text
        share = min(1.0, self._bytes_of_call() / self.full_call)
        return f"{text}, {share:.0%} of a full one ({self.full_call / (1 << 20):.4g} MiB)"

    def _bytes_of_call(self) -> float:
        return self.bytes * self.collectives / self.calls

    def advice(self) -> list[str]:
        """Returns what costs much, the most costly first, and what to do about it.

        If no part costs much, it names a rank that is a little late; nothing if there is none.
        """
        whole = statistics.fmean(self.seconds(rank, "whole") for rank in self.steps) or 1.0
        costs = [(self._input() / whole, self._on_input)]
        exposed = self._exposed() / whole
        if not self._is_of_the_straggler(exposed):
            costs += [(exposed, self._on_communication)]
        if self.straggler is not None:
            costs += [(self.straggler.share, self._on_straggler)]
        elif self.link is not None:
            costs += [(self._exposed() / whole, self._on_link)]
        told = sorted((cost for cost in costs if cost[0] > _NOTICEABLE), key=lambda cost: -cost[0])
        if not told and self.straggler is not None:
            told = costs[-1:]
        return [line for share, say in told for line in say(share)]

    def _is_of_the_straggler(self, exposed: float) -> bool:
        """Whether communication may take that share as a rank is kept from running in it, too."""
        found = self.straggler
        return found is not None and found.cause in straggler.HELD and found.share >= exposed

    def _exposed(self) -> float:
        """Seconds a step that go into communication which nothing hides."""
        return statistics.fmean(
            self.seconds(rank, "communication") + self.seconds(rank, "overhead")
            for rank in self.steps
        )

    def _input(self) -> float:
        """Seconds a step for which every rank waits for its input, at least."""
        return min(self.seconds(rank, "input") for rank in self.steps)

    def _on_communication(self, share: float) -> list[str]:
        what = f"Communication that nothing hides takes {share:.0%} of a step."
        if self.calls > max(2.0, 2 * self.collectives) and self._bytes_of_call() < _SMALL:
            return [what, _FUSE_MORE]
        return [what, _GROUP if self.bytes < _SMALL and self.collectives > 2 else _SEND_LESS]

    def _on_link(self, share: float) -> list[str]:
        assert self.link is not None
        ways = ", ".join(map(str, self.link.ways))
        return [f"A link is slow: {ways}; others have {bits(self.link.usual)}.", _MEND_LINK]

    def _on_input(self, share: float) -> list[str]:
        return [f"All ranks wait for their input for {share:.0%} of a step.", _CAUSES["input"][1]]

    def _on_straggler(self, share: float) -> list[str]:
        found = self.straggler
        assert found is not None
        text = f"The others wait for rank {found.rank} for {1e3 * found.seconds:.1f} ms a step"
        if found.cause == "link":
            assert self.link is not None
            return [
                f"{text} ({share:.0%}), though it is ready: the link of its host {self.link.host} "
                f"is slow, with {bits(self.link.rate)} where others have {bits(self.link.usual)}.",
                _MEND_LINK,
            ]
        what, fix = _CAUSES[found.cause]
        more = f", {1e3 * found.more:.1f} ms a step more than the others" if found.cause else ""
        return [f"{text} ({share:.0%}). It {what}{more}.", fix]


def _part(step: Step, part: str) -> float:
    return step.whole if part == "whole" else step.parts[part]


def _row(rank: int, seconds: Iterable[float], steps: list[Step]) -> str:
    values = "".join(f"{1e3 * value:14.3f}" for value in seconds)
    return f"{rank:4}  {values}{_waits_for(steps):>11}"


def _waits_for(steps: Iterable[Step]) -> str:
    """The rank for which most of the waiting is."""
    waits: dict[int, float] = {}
    for step in steps:
        for rank, seconds in step.waits_for.items():
            waits[rank] = waits.get(rank, 0.0) + seconds
    return f"rank {max(waits, key=lambda rank: waits[rank])}" if waits else "-"


def _within_steps(trace: Trace) -> list[Meeting]:
    if not trace.steps:
        return []
    begin, end = trace.steps[0].begin, trace.steps[-1].end
    return [meeting for meeting in trace.meetings if begin < meeting.ended <= end]


def make(traces: Mapping[int, Trace]) -> Report:
    """Makes the report of what all ranks have recorded."""
    steps = divide(traces)
    meetings = [meeting for trace in traces.values() for meeting in _within_steps(trace)]
    count = sum(map(len, steps.values())) or 1
    takes = sum(step.parts["communication"] for own in steps.values() for step in own)
    link = slow_links.find(traces, takes / len(traces))
    errors = [offset.error for offset in clock_offsets.offsets(traces).values()]
    return Report(
        steps=steps,
        straggler=straggler.find(steps, traces, link),
        clock_error=max(errors, default=0.0),
        collectives=len(meetings) / count,
        bytes=statistics.fmean(m.bytes for m in meetings) if meetings else 0.0,
        tensors=sum(meeting.tensors for meeting in meetings) / count,
        calls=sum(trace.calls for trace in traces.values()) / count,
        full_call=min(trace.alone_bytes for trace in traces.values()),
        link=link,
        only_collectives=any(trace.only_collectives for trace in traces.values()),
        traces=traces,
    )
