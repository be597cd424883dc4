"""SupervisorConfig: the configuration of a supervisor, on any host."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Timeouts:
    """The time limits of a supervisor, in seconds.

    Attributes:
        start: until all ranks must have started.
        stop: between asking ranks to stop and killing them.
        grace: as `stop`, if SIGTERM asks the launcher to stop: ranks may want to save their state.
        stopped: until a rank that is stopped (SIGSTOP) is killed, counted from when another rank
            has reached its end and waits; 0: never.
        hang: without progress, until the launcher asks why ranks wait; 0: never.
        evict: until a job continues without ranks that block the others, because they are stopped
            or do nothing; 0: never.
    """

    start: float
    stop: float
    grace: float
    stopped: float = 0.0
    hang: float = 0.0
    evict: float = 0.0


@dataclass(frozen=True)
class SupervisorConfig:
    """The configuration of a supervisor.

    Attributes:
        num_proc: the number of ranks to expect.
        token: the token of the job; "" in a copy for other hosts, which know the token.
        limits: the time limits.
        end_hanging: whether to end a job that hangs.
        majority: whether the job outlives the supervisor's host, with more than half of the ranks.
            A part of the job that may have fewer then ends.
        verbose: whether to print all output of mpirun, also after a failure.
        output: the arguments of Output.
    """

    num_proc: int
    token: str
    limits: Timeouts
    end_hanging: bool = False
    majority: bool = False
    verbose: bool = False
    output: dict[str, Any] = field(default_factory=dict)
