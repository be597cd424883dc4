"""The report in words: where the time of the steps went, who kept the others, and what to do."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tfhvd.profiling import clocks, straggler
from tfhvd.profiling.parts import PARTS, Step, divide
from tfhvd.profiling.straggler import Straggler
from tfhvd.profiling.trace import Trace

_MOST = 8  # ranks that have a line
_NOTICEABLE = 0.15  # of a step: what is worth advice
_SMALL = 64 * 1024  # bytes a collective
_RECORDED = ("waiting", "overhead", "communication", "other")  # of collectives alone

# What makes less of communication, by whether it is of many small collectives.
_LESS = {
    False: "Larger batches per rank, backward_passes_per_step, or compression send less.",
    True: "The collectives are small: pass many tensors to one grouped_allreduce, or have the tape "
    "or the optimizer reduce gradients.",
}
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
    """Where the time of some steps went.

    Attributes:
        steps: by rank, each step's parts.
        straggler: the rank that the others wait for; None where there is none.
        clock_error: seconds by which times of two hosts may be off.
        collectives: a step, on average.
        bytes: of a collective, on average.
        only_collectives: whether nothing else was recorded; "other" is all the rest of a step then.
    """

    steps: dict[int, list[Step]]
    straggler: Straggler | None
    clock_error: float
    collectives: float
    bytes: float
    only_collectives: bool = False

    def seconds(self, rank: int, part: str) -> float:
        """How long a part takes on a rank, a step on average; "whole" is the step.

        Example:
            >>> report.seconds(0, "computing") / report.seconds(0, "whole")
        """
        values = [_part(step, part) for step in self.steps[rank]]
        return statistics.fmean(values) if values else 0.0

    def lines(self, *, each_step: bool = False) -> list[str]:
        """Returns the report for a terminal.

        Args:
            each_step: whether it has, before what follows from them, the parts of every step.
        """
        count = max(map(len, self.steps.values()), default=0)
        ranks = sorted(self.steps)
        text = [f"{count} steps of {len(ranks)} rank{'s' if len(ranks) > 1 else ''}, in ms a step:"]
        shown = _RECORDED if self.only_collectives else PARTS
        text.append("rank  " + "".join(f"{name:>14}" for name in ("step", *shown)))
        for rank in ranks[:_MOST]:
            text.append(_row(rank, (self.seconds(rank, part) for part in ("whole", *shown))))
        if len(ranks) > _MOST:
            text.append(f"and {len(ranks) - _MOST} more ranks")
        if each_step:
            text += self._each_step(ranks[:_MOST], ("whole", *shown))
        if self.collectives:
            text.append(
                f"{self.collectives:.1f} collectives a step, of {self.bytes / 1024:.1f} KiB each"
            )
        if 0 < self.clock_error < math.inf:
            text.append(f"The hosts' clocks were compared to {1e3 * self.clock_error:.3f} ms.")
        return [*text, *self._advice()]

    def _each_step(self, ranks: list[int], shown: tuple[str, ...]) -> list[str]:
        """Every step by itself, below the same heads of columns."""
        text = []
        for number, steps in enumerate(itertools.zip_longest(*(self.steps[r] for r in ranks)), 1):
            text.append(f"step {number}:")
            made = [(rank, step) for rank, step in zip(ranks, steps) if step is not None]
            text += [_row(rank, (_part(step, part) for part in shown)) for rank, step in made]
        return text

    def _advice(self) -> list[str]:
        """Says what costs much, the most costly first; or which rank is a little late."""
        whole = statistics.fmean(self.seconds(rank, "whole") for rank in self.steps) or 1.0
        costs = [(self._exposed() / whole, self._on_communication)]
        costs += [(self._input() / whole, self._on_input)]
        if self.straggler is not None:
            costs += [(self.straggler.share, self._on_straggler)]
        told = sorted((cost for cost in costs if cost[0] > _NOTICEABLE), key=lambda cost: -cost[0])
        if not told and self.straggler is not None:
            told = costs[-1:]
        return [line for share, say in told for line in say(share)]

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
        small = self.bytes < _SMALL and self.collectives > 2
        return [f"Communication that nothing hides takes {share:.0%} of a step.", _LESS[small]]

    def _on_input(self, share: float) -> list[str]:
        return [f"All ranks wait for their input for {share:.0%} of a step.", _CAUSES["input"][1]]

    def _on_straggler(self, share: float) -> list[str]:
        found = self.straggler
        assert found is not None
        what, fix = _CAUSES[found.cause]
        more = f", {1e3 * found.more:.1f} ms a step more than the others" if found.cause else ""
        return [
            f"The others wait for rank {found.rank} for {1e3 * found.seconds:.1f} ms a step "
            f"({share:.0%}). It {what}{more}.",
            fix,
        ]


def _part(step: Step, part: str) -> float:
    return step.whole if part == "whole" else step.parts[part]


def _row(rank: int, seconds: Iterable[float]) -> str:
    return f"{rank:4}  " + "".join(f"{1e3 * value:14.3f}" for value in seconds)


def make(traces: Mapping[int, Trace]) -> Report:
    """Makes the report of what all ranks have recorded."""
    steps = divide(traces)
    meetings = [meeting for trace in traces.values() for meeting in trace.meetings]
    count = sum(map(len, steps.values())) or 1
    errors = [offset.error for offset in clocks.offsets(traces).values()]
    return Report(
        steps=steps,
        straggler=straggler.find(steps, traces),
        clock_error=max(errors, default=0.0),
        collectives=len(meetings) / count,
        bytes=statistics.fmean(m.bytes for m in meetings) if meetings else 0.0,
        only_collectives=any(trace.only_collectives for trace in traces.values()),
    )
