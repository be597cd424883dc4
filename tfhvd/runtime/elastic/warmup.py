"""Warmup: a joining rank of an elastic job calls the user's function once before it joins.

During the call the rank has an engine without other ranks. It reads its data, traces and compiles,
so that the others need not wait for this later. The call ends at the first place at which
`hvd.elastic.run` may call the function again in any case.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

from tfhvd.runtime.membership import membership

_logger = logging.getLogger("tfhvd")


class _End(BaseException):
    """Ends a warm-up; it is no Exception, so that the function does not handle it."""


class Warmup:
    """The warm-up of a function in this process."""

    def __init__(self) -> None:
        self._is_on = False

    @contextlib.contextmanager
    def of_function(self) -> Iterator[bool]:
        """Surrounds the call of the function; yields whether to call it."""
        with membership.rehearsal() as begun, contextlib.suppress(_End):
            self._is_on = begun
            try:
                yield begun
            finally:
                self._is_on = False

    def end_of_function(self) -> None:
        """Ends the warm-up here; does nothing without a warm-up."""
        if self._is_on:
            raise _End


rehearsal = Warmup()  # of this process


def warn_of_failure(what: str) -> None:
    """Warns, in an exception handler, that this rank joins without a warm-up of `what`."""
    _logger.warning(
        "rank %d comes to the job without having rehearsed %s, which failed where only this rank "
        "took part. The others wait until it has read its data and compiled its step. "
        "TFHVD_REHEARSE=0 rehearses nothing.",
        membership.require_topology().rank,
        what,
        exc_info=True,
    )
