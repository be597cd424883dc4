"""The flight record: what a rank's engine has noted of its last collectives, read from outside.

`cc/observe/flight_format.h` says what the bytes mean. The standard library alone: the process
around a rank reads it, too.
"""

from __future__ import annotations

import contextlib
import os
import struct
import time
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

NAME = "tfhvd-flight"  # of the file in memory

_MAGIC = b"tfhvdrec"
_VERSION = 3
_HEADER = struct.Struct("=8s5I4iI2qQq3q24xQq48x64s")
_PID = 8  # which of the fields
_SLOT = struct.Struct("=Q5q2IiH2B")
_KINDS = (
    "allreduce",
    "allgather",
    "broadcast",
    "barrier",
    "reducescatter",
    "alltoall",
    "join",
    "add_process_set",
    "remove_process_set",
    "Adasum allreduce",
)
_FAILED = 2  # a FlightState
_UNUSUAL = 10  # times the pause that is usual in a job
_EXCEPTIONS = 5  # pauses in a record; what is there more often is usual, however many steps it has
_LONGEST = 500  # bytes of a text; what is longer is cut


class State(Enum):
    """How far a collective has come."""

    WAITING = "waiting"  # for other ranks
    QUEUED = "queued"  # agreed, behind others
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True)
class Collective:
    """One collective of one rank. Times are seconds of its host's steady clock; None: not yet.

    Attributes:
        number: counts the rank's collectives from 1.
        name: by which the ranks meet; "" where the record had no room for it.
        origin: the line of the program that it comes from; "" where that is not known.
        kind: such as "allreduce".
        tensors: how many; a group is one collective.
        bytes: of all its tensors on this rank.
        submitted: when the program asked for it.
        agreed: when all ranks were known to be ready.
        began: when it was its turn.
        ended: when it was done or had failed.
        phase: what was done to it last, such as "shm_ALLREDUCE".
        waited_for: the rank that was not ready when this one was; None where it is not known.
        failed: whether it ended with an error.
    """

    number: int
    name: str
    origin: str
    kind: str
    tensors: int
    bytes: int
    submitted: float
    agreed: float | None
    began: float | None
    ended: float | None
    phase: str
    waited_for: int | None
    failed: bool

    @property
    def state(self) -> State:
        """How far it has come."""
        if self.ended is not None:
            return State.FAILED if self.failed else State.DONE
        if self.began is not None:
            return State.RUNNING
        return State.WAITING if self.agreed is None else State.QUEUED

    def __str__(self) -> str:
        several = f"{self.tensors} tensors, " if self.tensors > 1 else ""
        name = f" '{self.name}'" if self.name else ""
        origin = f", {self.origin}" if self.origin else ""
        return f"{self.kind}{name} ({several}{size_text(self.bytes)}{origin})"


@dataclass(frozen=True)
class Record:
    """What one rank has noted.

    Attributes:
        rank: its number in the job.
        size: how many ranks there are.
        pid: its process.
        leader: the lowest process number of the job's ranks on this host; 0: not known.
        host: its name.
        began: when its engine did, by its host's steady clock, in seconds.
        began_unix: the same as seconds since 1970.
        epoch: of Keras' `fit`, from 1; 0 where the rank is in none.
        step: how many steps of this epoch are done.
        submitted: how many collectives it has asked for.
        done: how many of them are done, or have failed.
        progress: when it asked for one, or one was done, last.
        tells_until: when its own watch can be relied on no longer; 0: it has had none.
        taken: when this was read.
        collectives: the last of them, in the order of submission.
    """

    rank: int
    size: int
    pid: int
    leader: int
    host: str
    began: float
    began_unix: float
    epoch: int
    step: int
    submitted: int
    done: int
    progress: float
    tells_until: float
    taken: float
    collectives: tuple[Collective, ...]

    def usual_pause(self) -> float:
        """How many seconds may pass between two of its collectives when all is well.

        The 99th percentile of its steps' longest pauses, without those that are exceptions: always
        the longest one, which may be a compilation, and never more than five. 0 where there are
        not two.
        """
        pauses = sorted(_longest_pauses(self.collectives))
        left_out = min(max(1, len(pauses) // 100), _EXCEPTIONS)
        return pauses[-1 - left_out] if len(pauses) > left_out else 0.0

    def waiting(self) -> list[Collective]:
        """Those that other ranks keep from going on: who has joined may wait as long as they train.

        In the order of submission.
        """
        unfinished = self.of(State.WAITING, State.QUEUED, State.RUNNING)
        return [collective for collective in unfinished if collective.kind != "join"]

    def waits_in_vain(self, limit: float) -> bool:
        """Whether it has waited for others so long without progress that the job may hang.

        Args:
            limit: seconds; it is longer where the pauses that are usual in this job are.
        """
        limit = max(limit, _UNUSUAL * self.usual_pause())
        return bool(self.waiting()) and self.taken >= self.progress + limit

    @property
    def can_tell(self) -> bool:
        """Whether its own watch ran lately: it does not where another thread holds Python."""
        return self.taken < self.tells_until

    def of(self, *states: State) -> list[Collective]:
        """Those in one of these states, in the order of submission."""
        return [collective for collective in self.collectives if collective.state in states]

    @property
    def position(self) -> str:
        """How far Keras' `fit` has come: "after step 3 of epoch 2"; "" outside of one."""
        return f"after step {self.step} of epoch {self.epoch}" if self.epoch else ""

    def doing(self) -> str:
        """What the rank does, or did when this was read, in words.

        Example: ``"It was in no collective, and had begun none."``
        """
        return self._collectives() + (f" That was {self.position}." if self.epoch else "")

    def _collectives(self) -> str:
        running = self.of(State.RUNNING)
        if running:
            first = running[0]
            since = _seconds(self.taken - (first.began or self.taken))
            return f"It was in {first}{_more(running)}, which had begun {since} before."
        waiting = self.of(State.WAITING, State.QUEUED)
        if waiting:
            first = waiting[0]
            since = _seconds(self.taken - first.submitted)
            whom = "other ranks" if first.waited_for is None else f"rank {first.waited_for}"
            return f"It had waited for {whom} with {first}{_more(waiting)} for {since}."
        if not self.collectives:
            return "It was in no collective, and had begun none."
        last = self.collectives[-1]
        since = _seconds(self.taken - (last.ended or last.submitted))
        which = f"the last of {self.done:,}" if self.done > 1 else "its only one"
        return f"It was in no collective: {which} had ended {since} before: {last}."


class RecordError(Exception):
    """The bytes are no record, or one of another version of tfhvd."""


def read(file: int, taken: float | None = None) -> Record:
    """Reads a record that may be written at the same time.

    Args:
        file: its descriptor.
        taken: when the rank did what is to be told, by the steady clock; None for now.

    Raises:
        RecordError: if it is none.
        OSError: if it cannot be read.
    """
    size = os.fstat(file).st_size
    data = os.pread(file, size, 0)
    taken = time.monotonic() if taken is None else taken
    # A collective whose slot is taken by another one meanwhile has another number the second time.
    return parse(data, os.pread(file, size, 0), taken)


def process_of(file: int) -> int:
    """The number of the process whose record this is; 0 where it is none."""
    with contextlib.suppress(OSError):
        head = _head_of(file)
        return 0 if head is None else head[_PID]
    return 0


def waits_in_vain(file: int, limit: float) -> bool:
    """Whether a rank has waited for others so long without progress that the job may hang.

    Args:
        file: the record's descriptor.
        limit: seconds; see `Record.waits_in_vain`.
    """
    with contextlib.suppress(OSError, RecordError):
        since = _waits_since(file)
        if since is None or time.monotonic() < since + limit:
            return False
        return read(file).waits_in_vain(limit)
    return False


def _waits_since(file: int) -> float | None:
    """When a rank that waits for others has made progress last; None where it waits for none.

    A look at the head of its record: much cheaper than to read it.

    Args:
        file: the record's descriptor.

    Raises:
        OSError: if it cannot be read.
    """
    head = _head_of(file)
    if head is None:
        return None
    submitted, submitted_at, _, _, _, done, done_at, _ = head[-8:]
    return max(submitted_at, done_at) / 1e9 if submitted > done else None


def _head_of(file: int) -> tuple[Any, ...] | None:
    """The fields of a record's head; None where it is none.

    Raises:
        OSError: if it cannot be read.
    """
    data = os.pread(file, _HEADER.size, 0)
    whole = len(data) == _HEADER.size and data.startswith(_MAGIC)
    return _HEADER.unpack(data) if whole else None


def parse(data: bytes, again: bytes, taken: float) -> Record:
    """Makes a record of its bytes, read twice at ``taken``.

    Raises:
        RecordError: if they are none.
    """
    if len(data) < _HEADER.size or not data.startswith(_MAGIC):
        raise RecordError("this is no flight record of tfhvd")
    (_, version, head, slots, slot, _, rank, size, pid, leader, _, *rest) = _HEADER.unpack_from(
        data
    )
    if version != _VERSION or slot != _SLOT.size or len(again) < head + slots * slot:
        raise RecordError(f"the flight record is one of another version of tfhvd ({version})")
    began, began_unix, submitted, submitted_at, epoch, step, tells_until, *rest = rest
    done, done_at, host = rest
    text = head + slots * slot
    collectives = []
    for place in range(head, text, slot):
        fields = _SLOT.unpack_from(data, place)
        if fields[0] != 0 and data[place : place + 8] == again[place : place + 8]:
            collectives.append(_collective(fields, again, text))
    return Record(
        rank=rank,
        size=size,
        pid=pid,
        leader=leader,
        host=_text_at(host, 0)[0],
        began=began / 1e9,
        began_unix=began_unix / 1e9,
        epoch=epoch,
        step=step,
        submitted=submitted,
        done=done,
        progress=max(began, submitted_at, done_at) / 1e9,
        tells_until=tells_until / 1e9,
        taken=taken,
        collectives=tuple(sorted(collectives, key=lambda collective: collective.number)),
    )


def _longest_pauses(collectives: Iterable[Collective]) -> list[float]:
    """Of each step the longest pause between two collectives that were done, in seconds.

    Within a step there are many short ones, which say nothing of the pause between two steps. A
    step is over where a name comes again. Where none does, each pause counts.
    """
    done = sorted((c.ended, c.number, (c.kind, c.name)) for c in collectives if c.ended is not None)
    pauses = [later - earlier for (earlier, _, _), (later, _, _) in zip(done, done[1:])]
    of_steps: list[float] = []
    seen = {name for _, _, name in done}  # so that the first pause begins a step
    for pause, (_, _, name) in zip(pauses, done[1:]):
        if name in seen:
            of_steps.append(0.0)
            seen = set()
        seen.add(name)
        of_steps[-1] = max(of_steps[-1], pause)
    return of_steps if len(of_steps) > 1 else pauses


def size_text(count: int) -> str:
    """``size_text(1500) == "1.5 kB"``."""
    units = ("B", "kB", "MB", "GB")
    power = min(len(str(count)) // 3 if count >= 1000 else 0, len(units) - 1)
    while power > 0 and count < 1000**power:
        power -= 1
    return f"{count / 1000**power:.3g} {units[power]}"


def _collective(fields: tuple[int, ...], data: bytes, text: int) -> Collective:
    number, submitted, agreed, began, ended, count, name, phase, waited, tensors, kind, state = (
        fields
    )
    named, end = _text_at(data, text + name) if name else ("", 0)
    return Collective(
        number=number,
        name=named,
        origin=_text_at(data, end + 1)[0] if name else "",
        kind=_KINDS[kind] if kind < len(_KINDS) else f"collective {kind}",
        tensors=tensors,
        bytes=count,
        submitted=submitted / 1e9,
        agreed=agreed / 1e9 if agreed else None,
        began=began / 1e9 if began else None,
        ended=ended / 1e9 if ended else None,
        phase=_text_at(data, text + phase)[0] if phase else "",
        waited_for=waited if waited >= 0 else None,
        failed=state == _FAILED,
    )


def _text_at(data: bytes, start: int) -> tuple[str, int]:
    """The text that begins there, and where its zero is."""
    end = data.index(0, start)
    return data[start:end][:_LONGEST].decode(errors="replace"), end


def _more(collectives: list[Collective]) -> str:
    count = len(collectives) - 1
    return "" if count == 0 else f" and {count} more"


def _seconds(seconds: float) -> str:
    return f"{seconds:.3f} s" if seconds < 1 else f"{seconds:.1f} s"
