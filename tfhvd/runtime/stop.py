"""Stop requests: all ranks stop after the same step, because one of them was asked to stop.

The request travels with the collectives of the step (`Request::stops` of the core). Without a
request this costs nothing. All ranks learn of a request with the same collective.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from tfhvd.protocol.exit_codes import STOP_REQUESTED
from tfhvd.runtime.membership import membership
from tfhvd.runtime.native import load_native
from tfhvd.runtime.process_sets import ProcessSet, checked_id, global_process_set, has_peers


class _Stop:
    """The stop in this process."""

    def __init__(self) -> None:
        self.requested = False  # by this process
        self.begun = False
        self.process = 0  # the process in which SIGTERM is a request; 0 for none


_stop = _Stop()


class StopRequested(SystemExit):
    """All ranks stop, because one of them was asked to. `fit` raises it; a loop should raise it.

    A program that does not catch it ends with exit code 75. `tfhvdrun` then ends with this exit
    code, too, and does not start the job again: a batch system may do so.

    Example:
        >>> if hvd.should_stop():
        ...     manager.save(step, {"model": model, "batches": batches})
        ...     raise hvd.StopRequested
    """

    def __init__(self) -> None:
        super().__init__(STOP_REQUESTED)
        _stop.begun = True


def request_stop() -> None:
    """Asks all ranks to stop after the same step, which is the present step or the next.

    A call on one rank is enough. In `fit` of a distributed model, all ranks then save by
    `hvd.callbacks.Checkpoint`, if they have it, and `fit` raises `StopRequested`. A loop must call
    `should_stop`. If a rank has used up its data before the others, the others continue to the end
    of the epoch. Any thread may call this function, and so may a handler of a signal.

    Raises:
        NotInitializedError: before `init`.

    Example:
        >>> if time.monotonic() > deadline:
        ...     hvd.request_stop()
    """
    native = load_native()
    if not membership.is_apart:
        native.request_stop()
    _stop.requested = True


def should_stop(process_set: ProcessSet = global_process_set) -> bool:
    """Returns whether a rank was asked to stop: the same on every rank, after the same step.

    It is for loops; `fit` checks this by itself. All ranks call it after each step. It is not a
    collective: the last collective of the step has brought the answer. From the first call on,
    SIGTERM asks all ranks to stop, unless the program has a handler for it, or the job is elastic.
    A second SIGTERM ends the process.

    Args:
        process_set: the ranks that train together.

    Raises:
        NotInitializedError: before `init`.

    Example:
        >>> if hvd.should_stop():
        ...     manager.save(step, {"model": model, "batches": batches})
        ...     raise hvd.StopRequested
    """
    checked_id(process_set)
    _listen()
    return is_agreed(process_set)


def is_agreed(process_set: ProcessSet) -> bool:
    """Returns whether a rank was asked to stop, as of the last collective of these ranks.

    A joining rank returns False before its admission: it has had no collective with the others.
    """
    if not has_peers(process_set):
        return _stop.requested
    if membership.is_apart:
        return False
    native = load_native()
    if _stop.requested:
        native.request_stop()  # an elastic job may have created another engine since
    return bool(native.stop_requested(process_set.process_set_id))


@contextlib.contextmanager
def requested_by_sigterm() -> Iterator[None]:
    """Makes SIGTERM a `request_stop` in this block, unless the program has a handler for it."""
    listens = _listen()
    try:
        yield
    finally:
        if listens and not _stop.begun:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            _stop.process = 0


def _listen() -> bool:
    """Makes SIGTERM a request, if this is possible; returns whether this call has done so."""
    if _stop.process == os.getpid() or membership.is_elastic:
        return False
    if threading.current_thread() is not threading.main_thread():
        return False
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return False
    signal.signal(signal.SIGTERM, _on_sigterm)
    _stop.process = os.getpid()
    return True


def _on_sigterm(number: int, frame: FrameType | None) -> None:
    is_ours = _stop.process == os.getpid()  # a forked child inherits the handler
    if is_ours and _stop.begun:
        return  # the launcher ends ranks that do not end
    native = load_native()
    if is_ours and not (_stop.requested or native.is_cut_short()):
        request_stop()
        return
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)
