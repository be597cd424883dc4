"""Ends the iterators of `tf.data` in a separate thread, so that no step waits for their end.

The end of an iterator waits for a thread of TensorFlow (2.16 to 2.21) that looks for better
settings of the pipeline: less and less often, at last after as long as the iterator has been used,
a minute at most. This thread is woken at the end, but may check for the end before that is noted,
and then sleeps again. One iterator in a hundred ends like this, one in ten on a busy machine, and
all other ranks wait in the next step. So another thread gets the last reference to an iterator.
"""

from __future__ import annotations

import atexit
import functools
import logging
import os
import queue
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfhvd.compat import private
from tfhvd.errors import UnavailableError

_logger = logging.getLogger("tfhvd")
_MOST = 8  # iterators that wait for their end: each holds what it has read ahead

# Seconds from the end of the program until a message says that the process waits for an iterator,
# and from there until the process ends if the program has failed.
_QUIET, _AFTER_FAILURE = 2.0, 3.0

# By these names Python keeps an uncaught exception.
_FAILURE = ("last_exc", "last_value", "last_traceback")


def end_aside(when: Callable[[], bool], end_if_failed: Callable[[], None]) -> None:
    """Has iterators that are made from now on end so; to be called once.

    Args:
        when: whether this process ends iterators in this way, asked whenever one is made.
        end_if_failed: ends the process if its program has failed; called at the process's end, if
            an iterator takes long.
    """
    use = "end iterators beside the training"
    try:
        owner = private.of_module("tensorflow.python.data.ops.iterator_ops", "OwnedIterator", use)
    except UnavailableError as error:
        _logger.debug("%s Without this, the end of an epoch may take as long as it again.", error)
        return
    private.replace_method(owner, "__init__", functools.partial(_noting, when))
    # Whatever is registered later runs before it: the rank leaves its job first, in time.
    atexit.register(_end.stop, end_if_failed)


def _noting(when: Callable[[], bool], make: Callable[..., None]) -> Callable[..., None]:
    def init(iterator: Any, dataset: Any = None, *args: Any, **kwargs: Any) -> None:
        make(iterator, dataset, *args, **kwargs)
        # One that is made of another one's parts, or is part of a graph, ends nothing.
        if dataset is not None and tf.executing_eagerly():
            if when():
                _end.begin()
            resource = getattr(iterator, "_iterator_resource", None)
            weakref.finalize(iterator, _end.hand_over, resource, dataset).atexit = False

    return init


class _End:
    """Drops what is handed over, in a thread."""

    def __init__(self) -> None:
        self._process = 0  # that has the thread; 0: none

    def begin(self) -> None:
        """Begins, unless it has in this process."""
        if self._process == os.getpid():
            return
        self._process = os.getpid()
        self._handed_over: queue.SimpleQueue[list[Any]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="tfhvd-iterators", daemon=True)
        self._thread.start()

    def hand_over(self, resource: Any, dataset: Any) -> None:
        """Takes the resource of an iterator, and the dataset whose functions it needs to the end.

        It is called whenever Python collects garbage: it may take no lock that another thread
        holds. In a child of the process, at its end, and if too many wait, the resource ends with
        its last reference, as usual.
        """
        if self._process == os.getpid() and self._handed_over.qsize() < _MOST:
            self._handed_over.put([dataset, resource])

    def stop(self, end_if_failed: Callable[[], None]) -> None:
        """Waits for the thread, which would abort the process if it came back from TensorFlow.

        After a failure not for ever: a generator may wait for data that no longer come. The objects
        of the exception's traceback are freed first: in the interpreter's last steps TensorFlow
        waits for a generator that cannot continue.
        """
        if self._process != os.getpid():
            return
        self._process = 0
        # No name may hold them here: the thread must drop the last reference.
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
        while held := self._handed_over.get():
            held.pop()  # Python's other threads run meanwhile
            held.clear()


_end = _End()
