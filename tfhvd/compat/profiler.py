"""TensorFlow's profiler: what this process computes, and when it waits for data.

Its events have names that no documentation promises; those below are of TensorFlow 2.16 to 2.21.
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
_DATASETS = "tf_data_"  # so begin the names of threads
_OPERATION = re.compile(r"[^:]+:(\w+)")  # a node's name and its type
_EAGER = re.compile(r"EagerLocalExecute: (\w+)")
_COMPILED = "ThunkExecutor::Execute"  # a whole step, from 2.18 on with an event for each part
_COMPILED_AS_ONE = "CpuExecutable::ExecuteAsyncOnStream"
_OURS = "Tfhvd"
_WAITING = (_OURS, "Iterator", "__inference", "__forward", "__backward")


@dataclass
class Events:
    """What was seen, in seconds of time.monotonic(): each from begin to end.

    Attributes:
        input: waiting for the next element of a dataset.
        computing: operations other than tfhvd's.
        steps: compiled steps: they compute whatever is not one of `ours`.
        ours: tfhvd's operations.
        compiled: whether some of `computing` are whole steps, of which no parts are known.
    """

    input: list[tuple[float, float]] = field(default_factory=list)
    computing: list[tuple[float, float]] = field(default_factory=list)
    steps: list[tuple[float, float]] = field(default_factory=list)
    ours: list[tuple[float, float]] = field(default_factory=list)
    compiled: bool = False


class Profiler:
    """One recording of this process. There is one profiler in a process.

    Raises:
        tf.errors.AlreadyExistsError: if somebody else uses it.
    """

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="tfhvd-profile-")
        self._marks: list[float] = []
        tf.profiler.experimental.start(self._folder.name)

    def mark(self) -> float:
        """Notes what time it is, by both clocks; call it now and then. Returns time.monotonic()."""
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
    # The event lies around the moment that was noted.
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
            continue  # what makes the elements of datasets, beside the steps
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
    """The name of each event, its begin and end by the profiler's clock, and its thread's name."""
    for plane in space.planes:  # type: ignore[attr-defined]
        if not plane.name.startswith("/host:"):
            continue
        for line in plane.lines:
            for event in line.events:
                begin = line.timestamp_ns / 1e9 + event.offset_ps / 1e12
                name = plane.event_metadata[event.metadata_id].name
                yield name, begin, begin + event.duration_ps / 1e12, line.name
