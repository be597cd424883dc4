"""The flight record: a rank's engine records its last collectives; other processes read them.

`cc/observe/flight_format.h` describes the bytes. This module uses the standard library only,
because the agent of a rank reads the record, too.
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
_PID = 8  # the index of this field
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
_UNUSUAL = 10  # times the usual pause of a job
_EXCEPTIONS = 5  # at most so many pauses are exceptions, for any number of steps: more are usual
_LONGEST = 500  # bytes of a text; a longer one is cut


class State(Enum):
    """The state of a collective."""

    WAITING = "waiting"  # for other ranks
    QUEUED = "queued"  # agreed, behind others
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True)
class Collective:
    """One collective of one rank. Times are seconds of its host's steady clock; None: not yet.

    Attributes:
        number: the number among the rank's collectives, from 1.
        name: the name by which ranks match it; "" if the record had no room for the name.
        origin: the line of the program that called it; "" if unknown.
        kind: such as "allreduce".
        tensors: the number of tensors; a group is one collective.
        bytes: of all its tensors on this rank.
        submitted: when the program called it.
        agreed: when all ranks were known to be ready.
        began: when the engine began to run it.
        ended: when it was done or had failed.
        phase: the last activity of it, such as "shm_ALLREDUCE".
        waited_for: the rank that was not ready when this rank was; None if unknown.
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
        """The state of this collective."""
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
    """The contents of one rank's flight record.

    Attributes:
        rank: its number in the job.
        size: the number of ranks of the job.
        pid: the rank's process.
        leader: the lowest process number of the job's ranks on this host; 0 if unknown.
        host: the name of the rank's host.
        began: when the rank's engine began, by its host's steady clock, in seconds.
        began_unix: when the rank's engine began, in seconds since 1970.
        epoch: of Keras' `fit`, from 1; 0 outside `fit`.
        step: the number of finished steps in this epoch.
        submitted: the number of collectives that the program has called.
        done: the number of collectives that are done or have failed.
        progress: the last time at which a collective was called or done.
        tells_until: the time until which the rank's own hang monitor is known to run; 0 without
            such a monitor.
        taken: when the record was read.
        collectives: the last collectives, in the order of submission.
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
        """Returns the usual longest pause between two collectives of a step, in seconds.

        It takes the longest pause of each step, and returns the 99th percentile of them without
        the exceptions. The longest pause is always an exception, because it may be a compilation;
        there are at most five exceptions. Returns 0 for fewer than two pauses.
        """
        pauses = sorted(_longest_pauses(self.collectives))
        left_out = min(max(1, len(pauses) // 100), _EXCEPTIONS)
        return pauses[-1 - left_out] if len(pauses) > left_out else 0.0

    def waiting(self) -> list[Collective]:
        """Returns the unfinished collectives, in the order of submission, without joins.

        A rank that has called `join` may wait as long as the others train.
        """
        unfinished = self.of(State.WAITING, State.QUEUED, State.RUNNING)
        return [collective for collective in unfinished if collective.kind != "join"]

    def waits_in_vain(self, limit: float) -> bool:
        """Whether the rank has waited for others so long without progress that the job may hang.

        Args:
            limit: seconds; the limit grows if the usual pauses of this job are longer.
        """
        limit = max(limit, _UNUSUAL * self.usual_pause())
        return bool(self.waiting()) and self.taken >= self.progress + limit

    @property
    def can_tell(self) -> bool:
        """Whether the rank's own monitor ran lately; it cannot if another thread holds the GIL."""
        return self.taken < self.tells_until

    def of(self, *states: State) -> list[Collective]:
        """Returns the collectives in one of these states, in the order of submission."""
        return [collective for collective in self.collectives if collective.state in states]

    @property
    def position(self) -> str:
        """The position of Keras' `fit`, such as "after step 3 of epoch 2"; "" outside `fit`."""
        return f"after step {self.step} of epoch {self.epoch}" if self.epoch else ""

    def doing(self) -> str:
        """Returns in words what the rank did when the record was read.

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
    """The bytes are not a record, or a record of another version of tfhvd."""


def read(file: int, taken: float | None = None) -> Record:
    """Reads a record, while the rank may write it.

    Args:
        file: its descriptor.
        taken: the time for which the record counts, by the steady clock; None for now.

    Raises:
        RecordError: if the file is not a record.
        OSError: if it cannot be read.
    """
    size = os.fstat(file).st_size
    data = os.pread(file, size, 0)
    taken = time.monotonic() if taken is None else taken
    # If another collective takes a slot meanwhile, the slot has another number the second time.
    return parse(data, os.pread(file, size, 0), taken)


def process_of(file: int) -> int:
    """Returns the number of the process whose record this is; 0 if it is not a record."""
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
    """Returns when a waiting rank has made progress last; None if the rank does not wait.

    It reads only the head of the record, which is much cheaper than the record.

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
    """Returns the fields of a record's head; None if the file is not a record.

    Raises:
        OSError: if it cannot be read.
    """
    data = os.pread(file, _HEADER.size, 0)
    whole = len(data) == _HEADER.size and data.startswith(_MAGIC)
    return _HEADER.unpack(data) if whole else None


def parse(data: bytes, again: bytes, taken: float) -> Record:
    """Returns the record in some bytes, which were read twice at ``taken``.

    Raises:
        RecordError: if the bytes are not a record.
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
    """Returns the longest pause of each step between the ends of two collectives, in seconds.

    The many short pauses within a step say nothing about the pause between two steps. A step ends
    when a name occurs again. If no name does, each pause counts.
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
    """Returns the text that begins at `start`, and the place of its final zero."""
    end = data.index(0, start)
    return data[start:end][:_LONGEST].decode(errors="replace"), end


def _more(collectives: list[Collective]) -> str:
    count = len(collectives) - 1
    return "" if count == 0 else f" and {count} more"


def _seconds(seconds: float) -> str:
    return f"{seconds:.3f} s" if seconds < 1 else f"{seconds:.1f} s"
