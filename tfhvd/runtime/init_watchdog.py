"""Says whom `init` waits for, where ranks do not come.

Of each host the first rank that waits says so: MPI tells nobody, and waits for ever. Where the
settings say that ranks do not wait for a stalled one any longer, they end, for MPI cannot be
interrupted. So they do where a job that hangs is to end, and the ranks of this host that have not
come stand still; what those of other hosts do cannot be seen before they have met.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping

from tfhvd.hang import init_waiters
from tfhvd.hang.timeouts import ends_hanging, hang_limit, stall_limit
from tfhvd.protocol import variables
from tfhvd.system import activity
from tfhvd.system.activity import Effort
from tfhvd.system.process_exit import end_at_once

_logger = logging.getLogger("tfhvd")

_TOO_LONG = " That is longer than TFHVD_STALL_SHUTDOWN_TIME_SECONDS allows."
_STANDS_STILL = " It has stood still meanwhile, and TFHVD_ON_HANG=abort ends the job."
_UNTIL_ALL_HAVE_SAID_SO = 1.0  # seconds
_LONGER = 5.0  # seconds beyond the limit for which a rank has stood still, as in a running job


@contextlib.contextmanager
def watched(environ: Mapping[str, str]) -> Iterator[None]:
    """Watches this process while it meets the others.

    Args:
        environ: its environment: who it is, and after how many seconds to say something, or to end.
    """
    variable, says_after = variables.variable_in(environ), hang_limit(environ)
    if variable is None or not says_after:
        yield
        return
    rank = int(environ[variable])
    timers = [threading.Timer(says_after, _report, (variable, rank, says_after, logging.WARNING))]
    ends_after = stall_limit(environ)
    if ends_after:
        timers.append(threading.Timer(ends_after, _end, (variable, rank, ends_after, _TOO_LONG)))
    met = threading.Event()
    if ends_hanging(environ):
        seconds = says_after + min(_LONGER, says_after)
        words = (variable, rank, seconds, met)
        threading.Thread(
            target=_end_if_it_hangs, args=words, name="tfhvd-meeting", daemon=True
        ).start()
    with init_waiters.announced():
        for timer in timers:
            timer.daemon = True
            timer.start()
        try:
            yield
        finally:
            met.set()
            for timer in timers:
                timer.cancel()


def _end_if_it_hangs(variable: str, rank: int, seconds: float, met: threading.Event) -> None:
    """Ends this process once all ranks of its host that have not come have stood still so long."""
    waited = 0.0
    before = _efforts(variable)
    while not met.wait(seconds):
        waited += seconds
        after = _efforts(variable)
        late = init_waiters.missing(init_waiters.ranks_here(os.getpid(), variable))
        still = (
            each in before and each in after and after[each].is_stillness(before[each])
            for each in late
        )
        if late and all(still):
            _end(variable, rank, waited, _STANDS_STILL)
        before = after


def _efforts(variable: str) -> dict[int, Effort]:
    """What each rank of this host that has not come has done so far."""
    found: dict[int, Effort] = {}
    for rank, arrival in init_waiters.ranks_here(os.getpid(), variable).items():
        with contextlib.suppress(OSError):  # has ended meanwhile
            if not arrival.came:
                found[rank] = activity.of(arrival.pid)
    return found


def _report(variable: str, rank: int, seconds: float, level: int, more: str = "") -> None:
    ranks = init_waiters.ranks_here(os.getpid(), variable)
    if rank == min((each for each, found in ranks.items() if found.waits), default=-1):
        begin = f"hvd.init() has waited {seconds:g} s for other ranks."
        _logger.log(level, "tfhvd rank %d: %s %s%s", rank, begin, init_waiters.text(ranks), more)


def _end(variable: str, rank: int, seconds: float, why: str) -> None:
    _report(variable, rank, seconds, logging.ERROR, why)
    # The others are to see the same, and not that this one has ended.
    time.sleep(_UNTIL_ALL_HAVE_SAID_SO)
    end_at_once(1)
