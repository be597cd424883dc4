"""Handover: the state that a supervisor leaves to its successor, as a value."""

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
    """The state of the ranks that were started later than the job.

    Attributes:
        managers: the process ids of the programs that have started these ranks, each with the
            ranks that have not connected yet.
        meet_by: by number, until when an admitted rank must be connected to the others.
        autoscaler: see Autoscaler.state.
    """

    managers: list[tuple[int, set[int]]] = field(default_factory=list)
    meet_by: dict[int, float] = field(default_factory=dict)
    autoscaler: scaling.State | None = None


@dataclass(frozen=True)
class Handover:
    """The state of a supervisor, which its successor takes over.

    Attributes:
        members: the members of the job.
        stopping: the progress of the job's end.
        ranks: all ranks that have connected, by number.
        manager: the process id of the program that has started the ranks.
        joiners: the state of the ranks that were started later.
        majority: the rosters that the members have, with --majority; else None.
    """

    members: Roster
    stopping: Stopping = field(default_factory=Stopping)
    ranks: dict[int, Rank] = field(default_factory=dict)
    manager: int = 0
    joiners: JoinersState = field(default_factory=JoinersState)
    majority: Quorum | None = None
