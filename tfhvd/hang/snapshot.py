"""All that can be seen of one rank at one moment."""

from __future__ import annotations

import dataclasses
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfhvd.hang.flight_record import Collective, Record, State
from tfhvd.system import cgroups, procfs, python_stacks

_DATASETS = "tensorflow/python/data/"

# How much is sent of a rank: some hundred kilobytes at most.
_KEPT = 100  # collectives of each kind
_THREADS, _FRAMES, _LONGEST = 16, 50, 300  # the last one: characters of a line

_FRAME = re.compile(r":\S+ in ")
# TensorFlow makes the Python of an operation from text, as `python -c` does with a program.
_OPERATION = re.compile(r"<string>:\d+ in tfhvd_")
_OWN = f"{Path(__file__).parents[1]}/"
_PACKAGES = ("/site-packages/", "/dist-packages/", "__autograph_generated_file", _OWN)
_PYTHONS = ("/lib/python3", "<frozen ")


@dataclass(frozen=True)
class Snapshot:
    """One rank.

    Attributes:
        record: what its engine has noted.
        state: its process, as the kernel says it: "R" runs, "S" sleeps, "D" waits for a disk, "T"
            is stopped, "Z" has ended; "" is gone.
        cpu: seconds of processor time that its threads have taken so far.
        wakeups: how often its main thread has gone to sleep and woken up so far.
        all_wakeups: the same of all its threads together.
        throttled: seconds for which a quota has kept it from a processor so far.
        memory_shortages: how often its control group was at the limit of its memory so far.
        waits_in: the function of the kernel in which its main thread waits; "" where it does not.
        threads: the stacks of its threads, the main one first: each from the last call outwards.
        taken: when, in seconds of this host's steady clock.
    """

    record: Record
    state: str
    cpu: float
    wakeups: int
    all_wakeups: int
    throttled: float
    memory_shortages: int
    waits_in: str
    threads: tuple[tuple[str, ...], ...]
    taken: float

    @property
    def rank(self) -> int:
        """Its number in the job."""
        return self.record.rank

    @property
    def main(self) -> tuple[str, ...]:
        """The stack of its main thread."""
        return self.threads[0] if self.threads else ()

    @property
    def line(self) -> str:
        """The user's line that its main thread is at; "" where it is at none."""
        return next((at for at in self.main if is_users(at)), "")

    @property
    def uncaught(self) -> str:
        """The type of the exception that its main thread is leaving with; "" where there is none.

        It has not ended: C code holds it that frees what the program had.
        """
        first = self.main[0] if self.main else ""
        return (
            first.removeprefix(python_stacks.UNCAUGHT)
            if first.startswith(python_stacks.UNCAUGHT)
            else ""
        )

    @property
    def waits_in_python(self) -> bool:
        """Whether its main thread waits where the program or Python's own library has it wait.

        As for a time, a lock, a thread or a queue: other threads can run Python meanwhile. Else
        another library is in its C code, or C code keeps Python from running.
        """
        first = self.main[0] if self.main else ""
        sleeps = "nanosleep" in self.waits_in
        return is_users(first) or _is_pythons(first) or (sleeps and _is_frame(first))

    @property
    def reading(self) -> str:
        """The user's line that a thread is at which makes a dataset's elements; "" without one."""
        for thread in self.threads:
            if any(_DATASETS in at for at in thread):
                return next((at for at in thread if is_users(at)), "")
        return ""


def take(pid: int, record: Record) -> Snapshot:
    """Looks at a rank.

    Args:
        pid: its process, as this one sees it.
        record: its record, read just before.
    """
    threads = tuple(tuple(thread) for thread in python_stacks.of(pid))
    state = procfs.state_of(pid)
    try:
        cpu, wakeups = procfs.cpu_seconds(pid), procfs.wakeups(pid)
    except OSError:
        state, cpu, wakeups = "", 0.0, (0, 0)
    groups = procfs.PROC / str(pid) / "cgroup"
    return Snapshot(
        record,
        state,
        cpu,
        *wakeups,
        cgroups.throttled_seconds(groups),
        cgroups.memory_shortages(groups),
        procfs.waits_in(pid),
        threads,
        time.monotonic(),
    )


def as_fields(snapshot: Snapshot) -> dict[str, Any]:
    """Makes what JSON can hold, and a frame of the launcher's, of it: no more than people read."""
    record = snapshot.record
    kept = (*record.waiting()[:_KEPT], *record.of(State.DONE, State.FAILED)[-_KEPT:])
    return dataclasses.asdict(
        dataclasses.replace(
            snapshot,
            record=dataclasses.replace(record, collectives=kept),
            threads=tuple(
                tuple(line[-_LONGEST:] for line in thread[:_FRAMES])
                for thread in snapshot.threads[:_THREADS]
            ),
        )
    )


def of_fields(fields: dict[str, Any]) -> Snapshot:
    """Makes it of what `as_fields` has made.

    Raises:
        KeyError, TypeError: if something is missing, or of no use.
    """
    record = dict(fields["record"])
    record["collectives"] = tuple(Collective(**each) for each in record["collectives"])
    threads = tuple(tuple(map(str, thread)) for thread in fields["threads"])
    return Snapshot(**{**fields, "record": Record(**record), "threads": threads})


def is_users(frame: str) -> bool:
    """Whether a line of a stack is of the user's program: of no library, and not tfhvd's."""
    if _OPERATION.match(frame):
        return False
    return _is_frame(frame) and not any(part in frame for part in (*_PACKAGES, *_PYTHONS))


def _is_pythons(frame: str) -> bool:
    """Whether a line of a stack is of Python's own library."""
    in_python, in_package = (
        any(part in frame for part in parts) for parts in (_PYTHONS, _PACKAGES)
    )
    return _is_frame(frame) and in_python and not in_package


def _is_frame(line: str) -> bool:
    """Else it says why there are no stacks, or what keeps the thread from going on."""
    return bool(_FRAME.search(line))
