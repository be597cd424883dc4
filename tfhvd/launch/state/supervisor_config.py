"""What a supervisor is told to do, whichever process and host it runs in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Timeouts:
    """In seconds.

    Attributes:
        start: until all ranks must have started.
        stop: between asking ranks to stop and killing them.
        grace: the same, where SIGTERM asks us to stop: ranks may want to save their state.
        stopped: until a rank that is stopped (SIGSTOP) is killed, once another rank has come to its
            end and waits for it; 0: never.
        hang: without progress, after which to find out why ranks wait; 0: never.
        evict: after which a job goes on without ranks that keep the others, because they are
            stopped or do nothing; 0: never.
    """

    start: float
    stop: float
    grace: float
    stopped: float = 0.0
    hang: float = 0.0
    evict: float = 0.0


@dataclass(frozen=True)
class SupervisorConfig:
    """All of it.

    Attributes:
        num_proc: the number of ranks to expect.
        token: the job's; "" in what travels to other hosts, which know it.
        limits: for how long it waits.
        end_hanging: whether to end the job then, if it hangs.
        majority: whether the job outlives the host of the supervisor, with more than half of the
            ranks; it then ends on a side that may have fewer.
        verbose: pass on all that mpirun says, also after a failure.
        output: the arguments of Output.
    """

    num_proc: int
    token: str
    limits: Timeouts
    end_hanging: bool = False
    majority: bool = False
    verbose: bool = False
    output: dict[str, Any] = field(default_factory=dict)
