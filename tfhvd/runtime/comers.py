"""What ranks that come to an elastic job need not do with the others, which did it before."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator

from tfhvd.runtime.membership import membership

_without_comers = contextvars.ContextVar("without_comers", default=False)


class Comers:
    """Whether ranks that come, and begin the program, would meet the others in its first `fit`.

    Attributes:
        would_miss: whether this process has taken part in a collective that they would wait for.
    """

    def __init__(self) -> None:
        self.would_miss = False

    def take_part(self) -> None:
        """Takes part in a collective: waits where this process is to be let in.

        Raises:
            NotInitializedError: where the process is in no job.
        """
        membership.take_part()
        if not (membership.rehearses or _without_comers.get()):
            self.would_miss = True

    @contextlib.contextmanager
    def do_without(self) -> Iterator[bool]:
        """Is around collectives without a result, which whoever comes later leaves out.

        Yields whether this process takes part: it does not where it has come, and is not let in.

        Raises:
            NotInitializedError: where the process is in no job.
        """
        membership.check()
        before = _without_comers.set(True)
        try:
            yield membership.rehearses or not membership.is_outside
        finally:
            _without_comers.reset(before)

    def forget(self) -> None:
        """Begins anew: the job is over."""
        self.would_miss = False


comers = Comers()  # of this process's job
membership.at_leaving(comers.forget)
