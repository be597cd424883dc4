"""What one rank has recorded of some training steps; plain data, which travels as JSON."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from tfhvd.profiling.intervals import Span


@dataclass(frozen=True)
class Meeting:
    """One collective of one rank, in seconds of its clock.

    Attributes:
        name: by which the ranks meet.
        turn: how many of that name came before it.
        submitted: when the program asked for it.
        agreed: when all ranks were known to be ready.
        began: when it was its turn.
        ended: when it was done.
        bytes: of all its tensors.
        tensors: how many.
    """

    name: str
    turn: int
    submitted: float
    agreed: float
    began: float
    ended: float
    bytes: int = 0
    tensors: int = 1


@dataclass(frozen=True)
class Sent:
    """What was sent over one TCP connection of a rank.

    Attributes:
        own: the address and port of this end.
        peer: those of the other end.
        bytes: that have arrived there.
        busy: seconds for which some were in progress, and the other end's program read them.
    """

    own: str
    peer: str
    bytes: int
    busy: float


@dataclass(frozen=True)
class Trace:
    """The steps of one rank, in seconds of its clock.

    Attributes:
        rank: its number.
        host: its name.
        steps: in order; of one profile without a gap.
        input: while a step waits for its data.
        computing: while an operation is computed.
        collecting: while Python looks for garbage.
        meetings: the collectives.
        compiled: whether XLA has made one operation of a step: it computes and waits in one.
        faults: page faults in which the disk was read.
        throttled: seconds for which a CPU quota has kept the rank from running.
        preempted: seconds for which the program's thread was ready to run, and what else runs on
            the host had its processor.
        calls: operations of shared memory, MPI or NCCL that have carried the steps' collectives.
        alone_bytes: a tensor of so many bytes has a separate call, since copying it would cost
            more: so a call with so many bytes is full.
        sent: over each connection, in the time of the steps.
        only_collectives: whether nothing but these was recorded: the rest of a step is unknown.
    """

    rank: int
    host: str
    steps: tuple[Span, ...]
    input: tuple[Span, ...] = ()
    computing: tuple[Span, ...] = ()
    collecting: tuple[Span, ...] = ()
    meetings: tuple[Meeting, ...] = ()
    compiled: bool = False
    faults: int = 0
    throttled: float = 0.0
    preempted: float = 0.0
    calls: int = 0
    alone_bytes: int = 1 << 20
    sent: tuple[Sent, ...] = ()
    only_collectives: bool = False

    def as_fields(self) -> dict[str, Any]:
        """Makes what JSON can hold of it."""
        return dataclasses.asdict(self)

    @classmethod
    def of_fields(cls, fields: dict[str, Any]) -> Trace:
        """Makes it of what `as_fields` has made."""
        spans = {
            name: tuple(Span(*span) for span in fields[name])
            for name in ("steps", "input", "computing", "collecting")
        }
        meetings = tuple(Meeting(**each) for each in fields["meetings"])
        sent = tuple(Sent(**each) for each in fields["sent"])
        return cls(**{**fields, **spans, "meetings": meetings, "sent": sent})
