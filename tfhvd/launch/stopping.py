"""Ending a job by steps: ask, ask again, kill. Pure: times in, due steps out."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field

CUT_OFF = (
    "more than half of the ranks are lost at once, with their hosts, or this part of the job is "
    "cut off from them. They may go on without it, so that it ends (--majority)"
)


@dataclass(frozen=True)
class Step:
    """One step: a signal for ranks, or for mpirun, at a time of a steady clock (seconds).

    "mpirun" is whatever starts the ranks.
    """

    at: float
    target: str  # "ranks" or "mpirun"
    signal: int


@dataclass
class Stopping:
    """How far the end of a job has come.

    Attributes:
        steps: those that are to come; none where nothing ends the job.
        at: when ranks were first told to stop; None: they have not been.
        signal: the one that asked us to stop.
        trouble: the launcher's own reason to stop.
        over: whether all ranks have ended.
    """

    steps: list[Step] = field(default_factory=list)
    at: float | None = None
    signal: int | None = None
    trouble: str | None = None
    over: bool = False

    @property
    def interrupted(self) -> bool:
        """Whether somebody, not a failure, has ended the job; or it may go on elsewhere."""
        return self.trouble == CUT_OFF or (self.signal is not None and self.trouble is None)


def plan(now: float, first: int, timeout: float, grace: float = 0.0) -> list[Step]:
    """The steps that end a job.

    Args:
        now: seconds of a steady clock.
        first: the signal to begin with; SIGTERM follows if it is another, and at last SIGKILL.
        timeout: seconds from the first signal to SIGKILL.
        grace: seconds to wait before the first signal.
    """
    start = now + grace
    steps = [Step(start, "ranks", first)]
    if first not in (signal.SIGTERM, signal.SIGKILL):
        steps.append(Step(start + 0.6 * timeout, "ranks", signal.SIGTERM))
    if first != signal.SIGKILL:
        steps.append(Step(start + timeout, "ranks", signal.SIGKILL))
    # The ranks' workers tell of the end and mpirun follows; these are for when they cannot.
    return steps + plan_for_mpirun(steps[-1].at + 1.0)


def plan_for_mpirun(now: float) -> list[Step]:
    """The steps that end mpirun, where it does not end by itself."""
    return [Step(now + 1.0, "mpirun", signal.SIGTERM), Step(now + 4.0, "mpirun", signal.SIGKILL)]


def take_due(steps: list[Step], now: float) -> list[Step]:
    """Removes and returns the steps whose time has come."""
    due = [step for step in steps if step.at <= now]
    steps[:] = [step for step in steps if step.at > now]
    return due
