"""What ranks that come to an elastic job need not do with the others, which did it before."""

from __future__ import annotations

import contextlib
import contextvars
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NoReturn

from tfhvd.runtime.elastic.call_log import Call, CallLog
from tfhvd.runtime.failpoints import come_to
from tfhvd.runtime.membership import membership

_logger = logging.getLogger("tfhvd")
_without_comers = contextvars.ContextVar("without_comers", default=False)
_variables: contextvars.ContextVar[Mapping[str, object] | None] = contextvars.ContextVar(
    "variables", default=None
)

_MOMENT = 0.05  # seconds


class Replay:
    """Whether ranks that come, and begin the program, would meet the others where these train.

    That is in a `fit`, or in the function of `hvd.elastic.run`. The results of eager collectives
    before it are kept for them, and those of each `fit` that is over, while there is room;
    variables need none, whose values they get there.

    Attributes:
        would_miss: whether this process has taken part in a collective that they would wait for.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begins anew: the job is over."""
        self.would_miss = False
        self._trains = False
        self._trained = 0
        self._barriers = 0
        self._own = CallLog()
        self._told: CallLog | None = None  # by others, to a process that is outside
        self._is_shut_out = False  # nobody is let in any more, as it was told
        self._owed: dict[int, tuple[str, object]] = {}  # variables without the others' values yet

    @property
    def keeps(self) -> bool:
        """Whether the results of what this process calls now are kept, or were, by others."""
        if self.would_miss or self._trains:
            return False
        return membership.is_elastic and not membership.rehearses

    def take_part(self) -> None:
        """Takes part in a collective without whose results nobody can go on.

        Raises:
            NotInitializedError: where the process is in no job.
        """
        if not (self.would_miss or self._trains):  # each collective of a training passes here
            membership.check()
            if not (_without_comers.get() or membership.rehearses):
                if membership.is_outside:
                    self.stay_out()
                self._miss()
        membership.take_part()

    def recall(self, call: Call) -> list[bytes | None] | None:
        """Returns the results that the others have got before they trained.

        A rank that has come waits until they train.

        Args:
            call: an eager collective of all ranks, whose results are equal on all of them, or one
                of Keras.

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
        known = self._wait_for_beginning().take(call)
        if known is not None:
            return list(known)
        variables = _variables.get()
        if variables is None:  # of another kind than the others'
            self.stay_out()
        self._owed |= {id(variable): (name, variable) for name, variable in variables.items()}
        return [None] * len(call.types)

    def keep(self, call: Call, size: int, values: Iterable[bytes]) -> None:
        """Keeps what this process has got by a collective, for ranks that come later.

        Args:
            call: which one.
            size: of its tensors, in bytes.
            values: the bytes of each; looked at only if they are kept.
        """
        if _without_comers.get() or not self.keeps:
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
            self.stay_out()
        self._owed.clear()

    @property
    def trained(self) -> int:
        """How many trainings are behind this process."""
        return self._trained

    def begin_training(self) -> bool:
        """Takes note that a `fit` begins, or the function of `hvd.elastic.run`.

        Returns:
            Whether ranks that come can do without all that this process has done until now, and
            so may be let in within this training.
        """
        if self.would_miss or self._trains or membership.rehearses:
            return False
        self._trains = True
        self._say(self._own)
        return True

    def end_training(self, call: Call | None = None, values: Sequence[bytes] = ()) -> None:
        """Takes note that a training is over that `begin_training` has said yes to.

        Args:
            call: the `fit`; None where ranks that come cannot do without it.
            values: what they are to know of it; NO_RESULT where they do it by themselves.
        """
        self._trains = False
        self._trained += 1
        size = sum(map(len, values))
        if call is None or not (membership.is_elastic and self._own.keep(call, size, values)):
            self._miss()

    def ended(self, call: Call) -> list[bytes] | None:
        """Returns what the others have got by a `fit` that they have ended; None: by no such one.

        Args:
            call: the `fit` that this process begins, which has come later.

        Raises:
            TfhvdError: if the others have called something else.
        """
        if not (membership.is_apart and self._is_over()):
            return None
        if self._is_shut_out:
            self.stay_out()
        values = self._caught_up().take(call)
        self._trained += 1
        return list(values or ())

    def train_alone(self) -> None:
        """Takes note that this process, which has come later, does a `fit` by itself."""
        self._trained += 1

    def enter(self) -> bool:
        """Waits to be let in where this process begins to train, if it has come later.

        Returns:
            Whether it takes part; if not, the others have ended that `fit`.

        Raises:
            NotInitializedError: where the process is in no job.
        """
        was_apart = membership.is_apart
        membership.take_part(self._trained, self._is_over)
        if was_apart and not membership.is_outside:
            self._look()
            self._own = self._told or self._own
            self.would_miss = self._is_shut_out  # the others are further by now
        return not membership.is_apart

    def enter_or_stay_out(self) -> None:
        """Likewise, where what begins is no `fit`; nobody is let in where the others ended one."""
        if not self.enter():
            self.stay_out()

    def wait_for_host(self) -> None:
        """Waits at a barrier for those alone that come to this host as this process does.

        Those that train have been there.
        """
        assert membership.launcher is not None and membership.endpoints is not None
        self._barriers += 1
        membership.launcher.barrier(self._barriers)
        while membership.endpoints.passed_barriers() < self._barriers:
            membership.wait_outside(_MOMENT)

    @contextlib.contextmanager
    def kept_whole(self) -> Iterator[None]:
        """Is around collectives of which none is kept, as what they are for is."""
        before = _without_comers.set(True)
        try:
            yield
        finally:
            _without_comers.reset(before)

    @contextlib.contextmanager
    def do_without(self) -> Iterator[bool]:
        """Is around collectives without a result, which whoever comes later leaves out.

        Yields whether this process takes part: it does not where it has come, and is not let in.

        Raises:
            NotInitializedError: where the process is in no job.
        """
        membership.check()
        with self.kept_whole():
            yield not membership.is_apart

    def stay_out(self) -> NoReturn:
        """Waits for the end of the job, at a place of the program where nobody is let in."""
        assert membership.launcher is not None
        membership.launcher.outside(for_good=True)
        while True:
            membership.wait_outside()

    def _wait_for_beginning(self) -> CallLog:
        """Returns what the others have done before the training that this process comes to next."""
        assert membership.launcher is not None
        waited = 0
        while (told := self._look()) is None or told.trained < self._trained:
            if self._is_shut_out:
                self.stay_out()
            membership.wait_outside()
            waited += 1
            if waited == 2:  # a second: usually they train by then
                membership.launcher.outside(for_good=False)
        return self._caught_up()

    def _caught_up(self) -> CallLog:
        """Returns what this process was told, from where it is: past what it did by itself."""
        assert self._told is not None
        while self._told.taken < self._trained:
            self._told.skip()
        return self._told

    def _is_over(self) -> bool:
        """Whether the others have come to another training than the next one of this process."""
        told = self._look()
        return self._is_shut_out or (told is not None and told.trained > self._trained)

    def _look(self) -> CallLog | None:
        """Looks what the others have done before the training that they are in."""
        assert membership.endpoints is not None
        fields = membership.endpoints.read_beginning()
        if fields is None:
            return None
        if fields["results"] is None:
            self._is_shut_out = True
        elif self._told is None:
            self._told = CallLog.of_fields(fields["results"])
        elif fields["trained"] > self._told.trained:
            self._told.go_on(CallLog.of_fields(fields["results"]))
        return self._told

    def _miss(self) -> None:
        if not self.would_miss:
            self.would_miss = True
            self._say(None)

    def _say(self, kept: CallLog | None) -> None:
        if membership.is_elastic and not membership.is_outside:
            assert membership.launcher is not None
            membership.launcher.begun(None if kept is None else kept.as_fields(), self._trained)
            come_to("training_said")


def _a_few(names: list[str]) -> str:
    more = f", and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(f"'{name}'" for name in names[:3]) + more


comers = Replay()  # of this process's job
membership.at_leaving(comers.forget)
