"""Names the ranks for which `init` waits too long.

On each host the first waiting rank prints the message, because MPI waits for ever without a word.
The waiting ranks end themselves in two cases, since MPI cannot be interrupted: after the stall
limit of the settings; and, if the settings end a job that hangs, when the missing ranks of this
host stand still. A rank cannot see the ranks of other hosts before `init` has connected them.
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
_LONGER = 5.0  # seconds beyond the limit that a rank must stand still, as in a running job


@contextlib.contextmanager
def watched(environ: Mapping[str, str]) -> Iterator[None]:
    """Watches this process while `init` connects it to the others.

    Args:
        environ: its environment, with its rank and the limits in seconds.
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
    """Ends this process when all missing ranks of its host have stood still for so long."""
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
    """Returns the activity, such as the processor time, of each missing rank of this host."""
    found: dict[int, Effort] = {}
    for rank, arrival in init_waiters.ranks_here(os.getpid(), variable).items():
        with contextlib.suppress(OSError):  # it has ended meanwhile
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
    # The others then report the missing ranks too, and not the end of this rank.
    time.sleep(_UNTIL_ALL_HAVE_SAID_SO)
    end_at_once(1)
