"""The rehearsal of a function of the user's, by a rank that waits to be let in to an elastic job.

It is called once while the rank has an engine of its own alone, so that data are read, and what it
computes is traced and compiled, before the others wait for this rank. It ends at the first place at
which the function may be called anew in any case.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

from tfhvd.runtime.membership import membership

_logger = logging.getLogger("tfhvd")


class _End(BaseException):
    """Ends a rehearsal; no Exception, so that the function does not handle it."""


class Warmup:
    """This process's rehearsal of a function, if there is one."""

    def __init__(self) -> None:
        self._is_on = False

    @contextlib.contextmanager
    def of_function(self) -> Iterator[bool]:
        """Surrounds the call; yields whether there is to be one."""
        with membership.rehearsal() as begun, contextlib.suppress(_End):
            self._is_on = begun
            try:
                yield begun
            finally:
                self._is_on = False

    def end_of_function(self) -> None:
        """Comes to a place at which it ends; elsewhere than in a rehearsal nothing happens."""
        if self._is_on:
            raise _End


rehearsal = Warmup()  # this process's


def warn_of_failure(what: str) -> None:
    """Says, where an exception is handled, that this rank comes without a rehearsal of `what`."""
    _logger.warning(
        "rank %d comes to the job without having rehearsed %s, which failed where only this rank "
        "took part. The others wait until it has read its data and compiled its step. "
        "TFHVD_REHEARSE=0 rehearses nothing.",
        membership.require_topology().rank,
        what,
        exc_info=True,
    )
