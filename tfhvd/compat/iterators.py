"""Ends the iterators of `tf.data` in separate threads, so that no step waits for their end.

The end of an iterator waits for a thread of TensorFlow (2.16 to 2.21) that tunes the pipeline. This
thread sleeps for longer and longer times, up to the age of the iterator, and a minute at most. The
end wakes it, but it may check for the end before the end is recorded, and then sleeps again. This
happens to one iterator in a hundred, on a busy machine to one in ten, and all other ranks wait in
the next step. So another thread gets the last reference to each iterator, and each iterator has its
own thread: a queue of iterators behind one whose end takes a minute would soon be full.
"""

from __future__ import annotations

import atexit
import functools
import logging
import os
import queue
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfhvd.compat import private
from tfhvd.errors import UnavailableError

_logger = logging.getLogger("tfhvd")
_MOST = 8  # iterators that end at one time: each holds the data that it has prefetched

# Seconds between looks for other references to a resource, and how many there are if there is no
# other one.
_PAUSES = (0.001, 0.01, 0.1, 1.0)
_LIST_AND_ARGUMENT = 2

# Seconds from the end of the program to a message that the process waits for an iterator; and, if
# the program has failed, from this message to the end of the process.
_QUIET, _AFTER_FAILURE = 2.0, 3.0

# The names in `sys` under which Python keeps an uncaught exception.
_FAILURE = ("last_exc", "last_value", "last_traceback")


def end_aside(when: Callable[[], bool], end_if_failed: Callable[[], None]) -> None:
    """Makes all new iterators end in separate threads; call it once.

    Args:
        when: returns whether this process ends a new iterator in this way.
        end_if_failed: ends the process if its program has failed; called at the end of the process,
            if an iterator takes long.
    """
    use = "end iterators beside the training"
    try:
        owner = private.of_module("tensorflow.python.data.ops.iterator_ops", "OwnedIterator", use)
    except UnavailableError as error:
        _logger.debug("%s Without this, the end of an epoch may take as long as it again.", error)
        return
    private.replace_method(owner, "__init__", functools.partial(_noting, when))
    # Functions that are registered later run earlier: so the rank leaves its job first.
    atexit.register(_end.stop, end_if_failed)


def _noting(when: Callable[[], bool], make: Callable[..., None]) -> Callable[..., None]:
    def init(iterator: Any, dataset: Any = None, *args: Any, **kwargs: Any) -> None:
        make(iterator, dataset, *args, **kwargs)
        # An iterator that is made from the parts of another one, or in a graph, ends nothing.
        if dataset is not None and tf.executing_eagerly():
            if when():
                _end.begin()
            resource = getattr(iterator, "_iterator_resource", None)
            weakref.finalize(iterator, _end.hand_over, resource, dataset).atexit = False

    return init


class _End:
    """A thread that gets objects, and starts another thread to drop each."""

    def __init__(self) -> None:
        self._process = 0  # the process that has the thread; 0 for none

    def begin(self) -> None:
        """Starts the thread, unless this process has one."""
        if self._process == os.getpid():
            return
        self._process = os.getpid()
        self._handed_over: queue.SimpleQueue[list[Any]] = queue.SimpleQueue()
        self._ending: set[int] = set()  # the ids of the lists that are not empty yet
        self._thread = threading.Thread(target=self._run, name="tfhvd-iterators", daemon=True)
        self._thread.start()

    def hand_over(self, resource: Any, dataset: Any) -> None:
        """Takes the resource of an iterator, and its dataset, whose functions its end may need.

        Python may call this in any garbage collection, so it must not take a lock that another
        thread may hold. As without tfhvd, the resource ends with its last reference in three cases:
        in a child of the process, at the end of the process, and if too many iterators are ending.
        """
        if self._process == os.getpid() and len(self._ending) < _MOST:
            held = [dataset, resource]
            self._ending.add(id(held))
            self._handed_over.put(held)

    def stop(self, end_if_failed: Callable[[], None]) -> None:
        """Waits for all threads: one that returned from TensorFlow later would abort the process.

        After a failure the waiting has a limit, because a generator may wait for data that never
        arrive. The objects in the exception's traceback are freed first: in the interpreter's last
        steps TensorFlow would wait for a generator that cannot continue.
        """
        if self._process != os.getpid():
            return
        self._process = 0
        # No local name may hold the objects: another thread must drop the last reference.
        self._handed_over.put([vars(sys).pop(name, None) for name in _FAILURE])
        self._handed_over.put([])
        self._thread.join(_QUIET)
        if not self._thread.is_alive():
            return
        print(
            "tfhvd: the program has ended. Its process ends once an iterator of tf.data has, for "
            "whose functions and generators TensorFlow waits: `tfhvd why` says at which line.",
            file=sys.stderr,
            flush=True,
        )
        self._thread.join(_AFTER_FAILURE)
        if self._thread.is_alive():
            end_if_failed()
            self._thread.join()

    def _run(self) -> None:
        threads: list[threading.Thread] = []
        while held := self._handed_over.get():
            thread = threading.Thread(
                target=self._drop, args=(held,), name="tfhvd-iterator", daemon=True
            )
            thread.start()
            threads = [each for each in (*threads, thread) if each.is_alive()]
        for thread in threads:
            thread.join()

    def _drop(self, held: list[Any]) -> None:
        if id(held) in self._ending:
            _await_last_reference(held)
        held.pop()  # other Python threads run meanwhile
        held.clear()
        self._ending.discard(id(held))


def _await_last_reference(held: list[Any]) -> None:
    """Waits until only this list refers to its last element, but not for long.

    An iterator drops its reference to its resource only after it has handed the resource over. If
    the thread that gets it were faster, the iterator would have the last reference.
    """
    for seconds in _PAUSES:
        if sys.getrefcount(held[-1]) <= _LIST_AND_ARGUMENT:
            return
        time.sleep(seconds)


_end = _End()
