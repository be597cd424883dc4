"""Says whom `init` waits for, where ranks do not come.

Of each host the first rank that waits says so: MPI tells nobody, and waits for ever. Where the
settings say that ranks do not wait for a stalled one any longer, they end, for MPI cannot be
interrupted.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping

from tfhvd.launch.environment import hang_limit, stall_limit
from tfhvd.watch import arrivals

_logger = logging.getLogger("tfhvd")

_TOO_LONG = " That is longer than TFHVD_STALL_SHUTDOWN_TIME_SECONDS allows."
_UNTIL_ALL_HAVE_SAID_SO = 1.0  # seconds


@contextlib.contextmanager
def watched(environ: Mapping[str, str]) -> Iterator[None]:
    """Watches this process while it meets the others.

    Args:
        environ: its environment: who it is, and after how many seconds to say something, or to end.
    """
    variable, says_after = arrivals.variable_in(environ), hang_limit(environ)
    if variable is None or not says_after:
        yield
        return
    rank = int(environ[variable])
    timers = [threading.Timer(says_after, _report, (variable, rank, says_after, logging.WARNING))]
    ends_after = stall_limit(environ)
    if ends_after:
        timers.append(threading.Timer(ends_after, _end, (variable, rank, ends_after)))
    with arrivals.announced():
        for timer in timers:
            timer.daemon = True
            timer.start()
        try:
            yield
        finally:
            for timer in timers:
                timer.cancel()


def _report(variable: str, rank: int, seconds: float, level: int, more: str = "") -> None:
    ranks = arrivals.ranks_here(os.getpid(), variable)
    if rank == min((each for each, found in ranks.items() if found.waits), default=-1):
        begin = f"hvd.init() has waited {seconds:g} s for other ranks."
        _logger.log(level, "tfhvd rank %d: %s %s%s", rank, begin, arrivals.text(ranks), more)


def _end(variable: str, rank: int, seconds: float) -> None:
    _report(variable, rank, seconds, logging.ERROR, _TOO_LONG)
    # The others are to see the same, and not that this one has ended.
    time.sleep(_UNTIL_ALL_HAVE_SAID_SO)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(1)
