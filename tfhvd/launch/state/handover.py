"""What a supervisor leaves to its successor, as a value."""

from __future__ import annotations

from dataclasses import dataclass, field

from tfhvd.launch.state import scaling
from tfhvd.launch.state.quorum import Quorum
from tfhvd.launch.state.rank_state import Rank
from tfhvd.launch.state.roster import Roster
from tfhvd.launch.state.shutdown_plan import Stopping

JOIN_LIMIT = 30.0  # seconds for an admitted rank to connect to the others, which wait for it


@dataclass(frozen=True)
class JoinersState:
    """What is known of the ranks that were started later.

    Attributes:
        managers: the process ids of what has started them, each with the ranks that have not
            connected yet.
        meet_by: until when an admitted rank must be connected to the others, by number.
        autoscaler: see Autoscaler.state.
    """

    managers: list[tuple[int, set[int]]] = field(default_factory=list)
    meet_by: dict[int, float] = field(default_factory=dict)
    autoscaler: scaling.State | None = None


@dataclass(frozen=True)
class Handover:
    """What a supervisor knows, and its successor takes over.

    Attributes:
        members: the members of the job.
        stopping: the progress of the job's end.
        ranks: all ranks that have connected, by number.
        manager: the process id of what has started the ranks.
        joiners: what is known of the ranks that were started later.
        majority: what the members know of each other, with --majority.
    """

    members: Roster
    stopping: Stopping = field(default_factory=Stopping)
    ranks: dict[int, Rank] = field(default_factory=dict)
    manager: int = 0
    joiners: JoinersState = field(default_factory=JoinersState)
    majority: Quorum | None = None
