"""What ranks that come to an elastic job need not do with the others, which did it before."""

from __future__ import annotations

import contextlib
import contextvars
import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import NoReturn

from tfhvd.runtime.beginning import Beginning, Call
from tfhvd.runtime.membership import membership

_logger = logging.getLogger("tfhvd")
_without_comers = contextvars.ContextVar("without_comers", default=False)
_variables: contextvars.ContextVar[Mapping[str, object] | None] = contextvars.ContextVar(
    "variables", default=None
)


class Comers:
    """Whether ranks that come, and begin the program, would meet the others where these train.

    That is where `fit` or the function of `hvd.elastic.run` begins. The results of eager
    collectives before it are kept for them, while there is room; variables need none, whose values
    they get there.

    Attributes:
        would_miss: whether this process has taken part in a collective that they would wait for.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begins anew: the job is over."""
        self.would_miss = False
        self._own = Beginning()
        self._told: Beginning | None = None  # what this process has not asked for yet
        self._owed: dict[int, tuple[str, object]] = {}  # variables without the others' values yet
        self._has_said = False  # to the launcher, what it has kept

    @property
    def keeps(self) -> bool:
        """Whether the results of what this process calls now are kept, or were, by others."""
        return not self._has_said and membership.is_elastic and not membership.rehearses

    def take_part(self) -> None:
        """Takes part in a collective without whose results nobody can go on.

        Raises:
            NotInitializedError: where the process is in no job.
        """
        if not self.would_miss:  # each collective of a training passes here
            membership.check()
            if not (_without_comers.get() or membership.rehearses):
                if membership.is_outside:
                    self._stay_out()
                self._miss()
        membership.take_part()

    def recall(self, call: Call) -> list[bytes | None] | None:
        """Returns the results that the others have got before they trained.

        A rank that has come waits until they train.

        Args:
            call: an eager collective of all ranks, whose results are equal on all of them.

        Returns:
            The bytes of each tensor, None for one that stays as it is here for now: see
            `may_come_later`. None for all where this process takes part itself.

        Raises:
            TfhvdError: if the others have called something else.
            NotInitializedError: where the process is in no job.
        """
        membership.check()
        if not membership.is_outside or _without_comers.get():
            membership.take_part()
            return None
        if self._told is None:
            self._told = self._wait_for_beginning()
        known = self._told.take(call)
        if known is not None:
            return list(known)
        variables = _variables.get()
        if variables is None:  # of another kind than the others'
            self._stay_out()
        self._owed |= {id(variable): (name, variable) for name, variable in variables.items()}
        return [None] * len(call.types)

    def keep(self, call: Call, size: int, values: Iterable[bytes]) -> None:
        """Keeps what this process has got by a collective, for ranks that come later.

        Args:
            call: which one.
            size: of its tensors, in bytes.
            values: the bytes of each; looked at only if they are kept.
        """
        if _without_comers.get() or self._has_said:
            return
        if not self._own.keep(call, size, values, comes_later=_variables.get() is not None):
            self._miss()

    @contextlib.contextmanager
    def may_come_later(self, variables: Mapping[str, object]) -> Iterator[None]:
        """Is around a broadcast of variables, of which there may be too much to keep.

        Whoever comes leaves them as they are then, if it gets their values where it begins to
        train.

        Args:
            variables: by what messages call them.
        """
        before = _variables.set(variables)
        try:
            yield
        finally:
            _variables.reset(before)

    def expect(self, variables: Iterable[object]) -> None:
        """Stays out where a rank that has come would train with other values than the others.

        Args:
            variables: which it gets, with the values that the others have, once it is let in.

        Raises:
            NotInitializedError: where the process is in no job.
        """
        given = {id(variable) for variable in variables} if self._owed else set()
        missing = [name for key, (name, _) in self._owed.items() if key not in given]
        if missing:
            _logger.warning(
                "This rank cannot take part in the job that it has come to: the others have "
                "broadcast variables before they trained that a rank that comes does not get, as "
                "they are not of the model and optimizer of fit, or of the state of "
                "hvd.elastic.run: %s.",
                _a_few(missing),
            )
            self._stay_out()
        self._owed.clear()

    def begin_training(self) -> bool:
        """Takes note that `fit` begins, or the function of `hvd.elastic.run`.

        Returns:
            Whether ranks that come can do without all that this process has done until now.
        """
        if not self.would_miss:
            self._say(self._own)
        return not self.would_miss

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

    def _wait_for_beginning(self) -> Beginning:
        assert membership.endpoints is not None and membership.launcher is not None
        waited = 0
        while (fields := membership.endpoints.read_beginning()) is None:
            membership.wait_outside()
            waited += 1
            if waited == 2:  # a second: usually they train by then
                membership.launcher.outside(for_good=False)
        if fields["results"] is None:
            self._stay_out()
        return Beginning.of_fields(fields["results"])

    def _stay_out(self) -> NoReturn:
        """Waits for the end of the job, at a place of the program where nobody is let in."""
        assert membership.launcher is not None
        membership.launcher.outside(for_good=True)
        while True:
            membership.wait_outside()

    def _miss(self) -> None:
        if not self.would_miss:
            self.would_miss = True
            self._say(None)

    def _say(self, kept: Beginning | None) -> None:
        if self.keeps:
            self._has_said = True
            if not (membership.is_outside or membership.came_later):
                assert membership.launcher is not None
                membership.launcher.begun(None if kept is None else kept.as_fields())


def _a_few(names: list[str]) -> str:
    more = f", and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(f"'{name}'" for name in names[:3]) + more


comers = Comers()  # of this process's job
membership.at_leaving(comers.forget)
