"""The steps that end a job: ask, ask again, kill. Pure: times in, due steps out."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field

CUT_OFF = (
    "more than half of the ranks failed at once, with their hosts, or this part of the job is cut "
    "off from them. They may continue without it, so this part ends (--majority)"
)


@dataclass(frozen=True)
class Step:
    """A signal for the ranks, or for mpirun, at a time of a steady clock (seconds).

    "mpirun" means the program that starts the ranks, with or without an MPI.
    """

    at: float
    target: str  # "ranks" or "mpirun"
    signal: int


@dataclass
class Stopping:
    """The progress of a job's end.

    Attributes:
        steps: the steps that are left; empty if nothing ends the job.
        at: when ranks were first told to stop; None: not yet.
        signal: the signal that asked tfhvdrun to stop.
        trouble: the trouble because of which the launcher stops the job.
        over: whether all ranks have ended.
    """

    steps: list[Step] = field(default_factory=list)
    at: float | None = None
    signal: int | None = None
    trouble: str | None = None
    over: bool = False

    @property
    def interrupted(self) -> bool:
        """Whether a signal has ended the job, or it may continue on other hosts: not a failure."""
        return self.trouble == CUT_OFF or (self.signal is not None and self.trouble is None)


def plan(now: float, first: int, timeout: float, grace: float = 0.0) -> list[Step]:
    """Return the steps that end a job.

    Args:
        now: seconds of a steady clock.
        first: the first signal; SIGTERM follows if it is another one, and SIGKILL at last.
        timeout: seconds from the first signal to SIGKILL.
        grace: seconds to wait before the first signal.
    """
    start = now + grace
    steps = [Step(start, "ranks", first)]
    if first not in (signal.SIGTERM, signal.SIGKILL):
        steps.append(Step(start + 0.6 * timeout, "ranks", signal.SIGTERM))
    if first != signal.SIGKILL:
        steps.append(Step(start + timeout, "ranks", signal.SIGKILL))
    # Usually the agents report the end and mpirun ends; these steps are for when they cannot.
    return steps + plan_for_mpirun(steps[-1].at + 1.0)


def plan_for_mpirun(now: float) -> list[Step]:
    """Return the steps that end mpirun if it does not end by itself."""
    return [Step(now + 1.0, "mpirun", signal.SIGTERM), Step(now + 4.0, "mpirun", signal.SIGKILL)]


def take_due(steps: list[Step], now: float) -> list[Step]:
    """Remove and return the steps that are due."""
    due = [step for step in steps if step.at <= now]
    steps[:] = [step for step in steps if step.at > now]
    return due
