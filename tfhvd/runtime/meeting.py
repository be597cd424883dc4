"""Says whom `init` waits for, where ranks do not come.

Of each host the first rank that waits says so: MPI tells nobody, and waits for ever. Where the
settings say that ranks do not wait for a stalled one any longer, they end, for MPI cannot be
interrupted.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping

from tfhvd.launch.environment import hang_limit, stall_limit
from tfhvd.watch import arrivals
from tfhvd.watch.arrivals import Arrival
from tfhvd.watch.ranks import ranks_text

_logger = logging.getLogger("tfhvd")

_Here = Callable[[], Mapping[int, Arrival]]  # finds the ranks of this host

_TOO_LONG = " That is longer than TFHVD_STALL_SHUTDOWN_TIME_SECONDS allows."
_UNTIL_ALL_HAVE_SAID_SO = 1.0  # seconds

_DOES = {"R": "computes", "T": "is stopped: kill -CONT {pid}", "t": "is stopped by a debugger"}


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
    here = functools.partial(arrivals.ranks_here, os.getpid(), variable)
    rank = int(environ[variable])
    timers = [threading.Timer(says_after, _report, (here, rank, says_after, logging.WARNING))]
    ends_after = stall_limit(environ)
    if ends_after:
        timers.append(threading.Timer(ends_after, _end, (here, rank, ends_after)))
    with arrivals.announced():
        for timer in timers:
            timer.daemon = True
            timer.start()
        try:
            yield
        finally:
            for timer in timers:
                timer.cancel()


def _report(here: _Here, rank: int, seconds: float, level: int, more: str = "") -> None:
    ranks = here()
    if rank == min((each for each, found in ranks.items() if found.waits), default=-1):
        _logger.log(level, "tfhvd rank %d: %s%s", rank, text(ranks, seconds), more)


def _end(here: _Here, rank: int, seconds: float) -> None:
    _report(here, rank, seconds, logging.ERROR, _TOO_LONG)
    # The others are to see the same, and not that this one has ended.
    threading.Event().wait(_UNTIL_ALL_HAVE_SAID_SO)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(1)


def text(ranks: Mapping[int, Arrival], seconds: float) -> str:
    """What is said of the ranks of a host, one of which has waited for so long.

    Example:
        >>> text({0: Arrival(7, "S", True, True), 1: Arrival(8, "R", False, False)}, 60)[:54]
        'hvd.init() has waited 60 s for other ranks. On this ho'
    """
    missing = {rank: found for rank, found in ranks.items() if not found.came}
    begin = f"hvd.init() has waited {seconds:g} s for other ranks."
    if not missing:
        return (
            f"{begin} All of this host ({ranks_text(ranks)}) have called it. If no other host "
            "names one of its ranks that has not, they cannot reach each other: type tfhvd doctor, "
            "with the -np and -H of the job."
        )
    first, found = next(iter(missing.items()))
    does = _DOES.get(found.state, "waits for something").format(pid=found.pid)
    have = "has" if len(missing) == 1 else "have"
    which = "It" if len(missing) == 1 else f"Rank {first}"
    return (
        f"{begin} On this host {ranks_text(missing)} {have} not called it. {which} (process "
        f"{found.pid}) {does}. Every rank must call hvd.init(): look at what the program does "
        "before, and for conditions that leave a rank out."
    )
