"""Which thread submits unnamed eager collectives: two threads at once have no order.

Ranks pair unnamed collectives of one kind by the order in which each submits them. Two threads of a
program may come in one order on this rank and in another on the next; then the first thread's
tensor would meet the second one's. So a thread takes over from another (as one does that has been
started to train), and from then on it is an error if the other comes again while this one lives, or
if both are there at once. After the error nothing unnamed of that kind is paired any more.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Iterator

import tensorflow as tf

from tfhvd.job import process
from tfhvd.ops.names import Name
from tfhvd.runtime.native import load_native


class Submitters:
    """The threads that have submitted collectives of one name in one process set."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._last: threading.Thread | _OfTensorFlow | None = None
        self._before: weakref.WeakSet[threading.Thread | _OfTensorFlow] = (
            weakref.WeakSet()
        )  # those that `_last` took over from
        self._under_way = 0  # of `_last`
        self._refused = ""  # the two that met

    def begin(self, thread: threading.Thread | _OfTensorFlow) -> str:
        """Notes that a thread submits one; returns both names if this is an error."""
        with self._mutex:
            if not self._refused and self._last is not None and thread is not self._last:
                lives = self._under_way > 0 or (thread in self._before and self._last.is_alive())
                if lives:
                    self._refused = f"'{self._last.name}' and '{thread.name}'"
                self._before.add(self._last)
            if not self._refused:
                self._last = thread
                self._under_way += 1
            return self._refused

    def end(self) -> None:
        """Notes that the collective is over."""
        with self._mutex:
            self._under_way -= 1


class _OfTensorFlow:
    """All threads that are not Python's: TensorFlow chooses one of them for each call."""

    name = "a thread of TensorFlow"

    @staticmethod
    def is_alive() -> bool:
        return True


class _ByName(dict[tuple[str, int], Submitters]):
    """The submitters of each name and process set, except those of removed sets."""

    FEW = 256  # as long as there are no more, nothing is looked for that may be forgotten

    def __init__(self) -> None:
        self._mutex = threading.Lock()

    def of(self, name: str, process_set_id: int) -> Submitters:
        """Returns those of a name, made by the first call for it."""
        found = self.get((name, process_set_id))
        if found is not None:
            return found
        with self._mutex:
            if len(self) >= self.FEW:
                there = load_native().process_sets()
                for gone in [key for key in self if key[1] not in there]:
                    del self[gone]
            return self.setdefault((name, process_set_id), Submitters())


_by_name = _ByName()
_OF_TENSORFLOW = _OfTensorFlow()


@contextlib.contextmanager
def in_turn(name: Name, process_set_id: int) -> Iterator[None]:
    """Surrounds the submission of a collective.

    Raises:
        tf.errors.InvalidArgumentError: if it is unnamed, and threads take turns at such ones.
    """
    if not name.anonymous or not tf.executing_eagerly():
        yield
        return
    submitters = _by_name.of(name.text, process_set_id)
    thread: threading.Thread | _OfTensorFlow = threading.current_thread()
    if type(thread).__name__ == "_DummyThread":
        thread = _OF_TENSORFLOW
    met = submitters.begin(thread)
    if met:
        raise tf.errors.InvalidArgumentError(
            None,
            None,
            f"Ranks match unnamed collectives by their order, which two threads do not have: "
            f"'{name.text}' was called by the threads {met} on rank {process.rank()}. Pass "
            "name=..., the same on every rank, in the calls of all threads but one.",
        )
    try:
        yield
    finally:
        submitters.end()
