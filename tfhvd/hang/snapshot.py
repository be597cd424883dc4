"""Snapshot: the state of one rank at one moment, as other processes can see it."""

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

# The limits of a snapshot that is sent: some hundred kilobytes at most.
_KEPT = 100  # unfinished, and as many finished collectives
_THREADS, _FRAMES, _LONGEST = 16, 50, 300  # _LONGEST: characters of a line

_FRAME = re.compile(r":\S+ in ")
# TensorFlow compiles the Python code of an operation from text, as `python -c` does.
_OPERATION = re.compile(r"<string>:\d+ in tfhvd_")
_OWN = f"{Path(__file__).parents[1]}/"
_PACKAGES = ("/site-packages/", "/dist-packages/", "__autograph_generated_file", _OWN)
_PYTHONS = ("/lib/python3", "<frozen ")


@dataclass(frozen=True)
class Snapshot:
    """The state of one rank at one moment. Counts begin with the process.

    Attributes:
        record: its flight record.
        state: the kernel's state of its process: "R" runs, "S" sleeps, "D" waits for a disk, "T" is
            stopped, "Z" has ended; "" if the process is gone.
        cpu: seconds of processor time of its threads.
        wakeups: how often its main thread has gone to sleep and woken up.
        all_wakeups: how often all its threads together have gone to sleep and woken up.
        throttled: seconds for which a quota has kept it from a processor.
        memory_shortages: how often its control group was at the limit of its memory.
        waits_in: the function of the kernel in which its main thread waits; "" if it does not wait.
        threads: the stacks of its threads, first the main thread; each from the last call outwards.
        taken: the time, in seconds of this host's steady clock.
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
        """The number of the rank in the job."""
        return self.record.rank

    @property
    def main(self) -> tuple[str, ...]:
        """The stack of the main thread."""
        return self.threads[0] if self.threads else ()

    @property
    def line(self) -> str:
        """The line of the user's program in which the main thread is; "" if it is in none."""
        return next((at for at in self.main if is_users(at)), "")

    @property
    def uncaught(self) -> str:
        """The type of the exception with which the main thread ends; "" without one.

        The thread has not ended: it waits in C code that frees the program's objects.
        """
        first = self.main[0] if self.main else ""
        return (
            first.removeprefix(python_stacks.UNCAUGHT)
            if first.startswith(python_stacks.UNCAUGHT)
            else ""
        )

    @property
    def waits_in_python(self) -> bool:
        """Whether the main thread waits in a call of the program, or of Python's own library.

        It waits, for example, for a time, a lock, a thread or a queue, and other threads can run
        Python meanwhile. If False, the thread is in the C code of another library, or C code keeps
        Python from running.
        """
        first = self.main[0] if self.main else ""
        sleeps = "nanosleep" in self.waits_in
        return is_users(first) or _is_pythons(first) or (sleeps and _is_frame(first))

    @property
    def reading(self) -> str:
        """The user's line in a thread that makes the elements of a dataset; "" without one."""
        for thread in self.threads:
            if any(_DATASETS in at for at in thread):
                return next((at for at in thread if is_users(at)), "")
        return ""


def take(pid: int, record: Record) -> Snapshot:
    """Takes a snapshot of a rank.

    Args:
        pid: its process, as this process sees it.
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
    """Returns a snapshot as values for JSON, cut to a size for readers and for a frame."""
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
    """Returns the snapshot from the result of `as_fields`.

    Raises:
        KeyError, TypeError: if a field is missing or wrong.
    """
    record = dict(fields["record"])
    record["collectives"] = tuple(Collective(**each) for each in record["collectives"])
    threads = tuple(tuple(map(str, thread)) for thread in fields["threads"])
    return Snapshot(**{**fields, "record": Record(**record), "threads": threads})


def is_users(frame: str) -> bool:
    """Whether a line of a stack is in the user's program, and not in a library or in tfhvd."""
    if _OPERATION.match(frame):
        return False
    return _is_frame(frame) and not any(part in frame for part in (*_PACKAGES, *_PYTHONS))


def _is_pythons(frame: str) -> bool:
    """Whether a line of a stack is in Python's own library."""
    in_python, in_package = (
        any(part in frame for part in parts) for parts in (_PYTHONS, _PACKAGES)
    )
    return _is_frame(frame) and in_python and not in_package


def _is_frame(line: str) -> bool:
    """Whether a line is a frame; other lines say why there is no stack, or why a thread waits."""
    return bool(_FRAME.search(line))
