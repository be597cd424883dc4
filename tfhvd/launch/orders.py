"""What a supervisor is to do, whichever process it is, and on whichever host."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tfhvd.launch.limits import Limits


@dataclass(frozen=True)
class Orders:
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
    limits: Limits
    end_hanging: bool = False
    majority: bool = False
    verbose: bool = False
    output: dict[str, Any] = field(default_factory=dict)
