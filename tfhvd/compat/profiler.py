"""TensorFlow's profiler: when this process computes, and when it waits for data.

The names of its events are undocumented; those below are from TensorFlow 2.16 to 2.21.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import tensorflow as tf

_MARK = "tfhvd/mark"
_INPUT = ("IteratorGetNextOp::DoCompute", "EagerLocalExecute: IteratorGetNext")
_DATASETS = "tf_data_"  # the beginning of the names of threads
_OPERATION = re.compile(r"[^:]+:(\w+)")  # a node's name and its type
_EAGER = re.compile(r"EagerLocalExecute: (\w+)")
_COMPILED = "ThunkExecutor::Execute"  # a whole step, from 2.18 on with an event for each part
_COMPILED_AS_ONE = "CpuExecutable::ExecuteAsyncOnStream"
_OURS = "Tfhvd"
_WAITING = (_OURS, "Iterator", "__inference", "__forward", "__backward")


@dataclass
class Events:
    """The recorded events, each from begin to end, in seconds of time.monotonic().

    Attributes:
        input: the times of waiting for the next element of a dataset.
        computing: the operations, except those of tfhvd.
        steps: the compiled steps, which compute except during `ours`.
        ours: the operations of tfhvd.
        compiled: whether some of `computing` are whole steps, whose parts are unknown.
    """

    input: list[tuple[float, float]] = field(default_factory=list)
    computing: list[tuple[float, float]] = field(default_factory=list)
    steps: list[tuple[float, float]] = field(default_factory=list)
    ours: list[tuple[float, float]] = field(default_factory=list)
    compiled: bool = False


class Profiler:
    """One recording of this process. There is one profiler in a process.

    Raises:
        tf.errors.AlreadyExistsError: if the profiler is in use.
    """

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="tfhvd-profile-")
        self._marks: list[float] = []
        tf.profiler.experimental.start(self._folder.name)

    def mark(self) -> float:
        """Notes the time of both clocks; returns time.monotonic(). Call it from time to time."""
        with tf.profiler.experimental.Trace(_MARK):
            now = time.monotonic()
        self._marks.append(now)
        return now

    def stop(self) -> Events:
        """Ends the recording."""
        try:
            tf.profiler.experimental.stop()
            files = sorted(Path(self._folder.name).rglob("*.xplane.pb"))
            return _read(files[-1].read_bytes(), self._marks) if files else Events()
        finally:
            self._folder.cleanup()


def _read(data: bytes, marks: list[float]) -> Events:
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    space = xplane_pb2.XSpace()
    space.ParseFromString(data)
    found = list(_events(space))
    own = sorted((begin, end) for name, begin, end, _ in found if name == _MARK)
    if not own or not marks:
        return Events()
    # The noted moment is inside the event.
    shift = min(
        (noted - (begin + end) / 2 for noted, (begin, end) in zip(marks, own)),
        key=abs,
    )
    events = Events()
    as_one: list[tuple[float, float]] = []
    for name, begin, end, thread in found:
        span = (begin + shift, end + shift)
        operation = _OPERATION.fullmatch(name) or _EAGER.fullmatch(name)
        if name in _INPUT:
            events.input.append(span)
        elif thread.startswith(_DATASETS):
            continue  # operations that make the elements of datasets in the background
        elif name == _COMPILED:
            events.steps.append(span)
        elif name == _COMPILED_AS_ONE:
            as_one.append(span)
        elif name.startswith(_OURS):
            events.ours.append(span)
        elif operation is not None and not operation[1].startswith(_WAITING):
            events.computing.append(span)
    if not events.steps:
        events.computing += as_one
        events.compiled = bool(as_one)
    return events


def _events(space: object) -> Iterator[tuple[str, float, float, str]]:
    """Yields for each event its name, its begin and end by the profiler's clock, and its thread."""
    for plane in space.planes:  # type: ignore[attr-defined]
        if not plane.name.startswith("/host:"):
            continue
        for line in plane.lines:
            for event in line.events:
                begin = line.timestamp_ns / 1e9 + event.offset_ps / 1e12
                name = plane.event_metadata[event.metadata_id].name
                yield name, begin, begin + event.duration_ps / 1e12, line.name
