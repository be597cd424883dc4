"""Replay: gives a joining rank the results of the collectives that the job has done already."""

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
    """Lets a rank join a job whose other ranks train already.

    A joining rank starts the program at its beginning, and meets the others in a training: in a
    `fit`, or in the function of `hvd.elastic.run`. The others have recorded the results of the
    eager collectives before it, and of each finished `fit`, as far as there is room. The joining
    rank takes these results instead of calling the collectives. Variables need no record, because
    the joining rank receives their values when the others admit it.

    Attributes:
        would_miss: whether this process has taken part in a collective without a record, for which
            a joining rank would wait for ever.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Resets the state when the job is over."""
        self.would_miss = False
        self._trains = False
        self._trained = 0
        self._barriers = 0
        self._own = CallLog()
        self._told: CallLog | None = None  # what the others have recorded, in a joining rank
        self._is_shut_out = False  # the others have told that they admit no more ranks
        self._owed: dict[int, tuple[str, object]] = {}  # variables that lack the others' values

    @property
    def keeps(self) -> bool:
        """Whether the results of collectives are recorded now, here or by the other ranks."""
        if self.would_miss or self._trains:
            return False
        return membership.is_elastic and not membership.rehearses

    def take_part(self) -> None:
        """Takes part in a collective whose results are not recorded.

        Raises:
            NotInitializedError: if the process is in no job.
        """
        if not (self.would_miss or self._trains):  # each collective of a training passes here
            membership.check()
            if not (_without_comers.get() or membership.rehearses):
                if membership.is_outside:
                    self.stay_out()
                self._miss()
        membership.take_part()

    def recall(self, call: Call) -> list[bytes | None] | None:
        """Returns the recorded results of a call; a joining rank waits until the others train.

        Args:
            call: an eager collective of all ranks with equal results on all of them, or a call of
                Keras.

        Returns:
            The bytes of each tensor; None for a tensor that keeps its present value for now, see
            `may_come_later`. None instead of a list if this process takes part itself.

        Raises:
            TfhvdError: if the others have made another call.
            NotInitializedError: if the process is in no job.
        """
        membership.check()
        if not membership.is_outside or _without_comers.get():
            membership.take_part()
            return None
        known = self._wait_for_beginning().take(call)
        if known is not None:
            return list(known)
        variables = _variables.get()
        if variables is None:  # the others have broadcast variables here
            self.stay_out()
        self._owed |= {id(variable): (name, variable) for name, variable in variables.items()}
        return [None] * len(call.types)

    def keep(self, call: Call, size: int, values: Iterable[bytes]) -> None:
        """Records the results of a collective for ranks that join later.

        Args:
            call: the collective.
            size: of its tensors, in bytes.
            values: the bytes of each tensor; read only if there is room.
        """
        if _without_comers.get() or not self.keeps:
            return
        if not self._own.keep(call, size, values, comes_later=_variables.get() is not None):
            self._miss()

    @contextlib.contextmanager
    def may_come_later(self, variables: Mapping[str, object]) -> Iterator[None]:
        """Surrounds a broadcast of variables, which may be too large to record.

        A joining rank then keeps its own values for now, and receives the others' values when it
        begins to train.

        Args:
            variables: by their names in messages.
        """
        before = _variables.set(variables)
        try:
            yield
        finally:
            _variables.reset(before)

    def expect(self, variables: Iterable[object]) -> None:
        """Stays out of the job if this joining rank would train with other values than the others.

        Args:
            variables: the variables that this rank will receive when the others admit it.

        Raises:
            NotInitializedError: if the process is in no job.
        """
        given = {id(variable) for variable in variables} if self._owed else set()
        missing = [name for key, (name, _) in self._owed.items() if key not in given]
        if missing:
            _logger.warning(
                "This rank cannot join the running job: before they trained, the others have "
                "broadcast variables that a joining rank does not receive, because they belong "
                "neither to the model and optimizer of fit nor to the state of hvd.elastic.run: "
                "%s.",
                _a_few(missing),
            )
            self.stay_out()
        self._owed.clear()

    @property
    def trained(self) -> int:
        """The number of trainings that this process has finished."""
        return self._trained

    def begin_training(self) -> bool:
        """Records that a `fit`, or the function of `hvd.elastic.run`, begins.

        Returns:
            Whether ranks can join within this training: all collectives so far have a record.
        """
        if self.would_miss or self._trains or membership.rehearses:
            return False
        self._trains = True
        self._say(self._own)
        return True

    def end_training(self, call: Call | None = None, values: Sequence[bytes] = ()) -> None:
        """Records that a training has ended for which `begin_training` returned True.

        Args:
            call: the `fit`; None if ranks cannot join after this training.
            values: the results for joining ranks; NO_RESULT if these train by themselves.
        """
        self._trains = False
        self._trained += 1
        size = sum(map(len, values))
        if call is None or not (membership.is_elastic and self._own.keep(call, size, values)):
            self._miss()

    def ended(self, call: Call) -> list[bytes] | None:
        """Returns the results of a `fit` that the others have finished; None if they have not.

        Args:
            call: the `fit` that this joining rank begins.

        Raises:
            TfhvdError: if the others have made another call.
        """
        if not (membership.is_apart and self._is_over()):
            return None
        if self._is_shut_out:
            self.stay_out()
        values = self._caught_up().take(call)
        self._trained += 1
        return list(values or ())

    def train_alone(self) -> None:
        """Records that this joining rank does a `fit` by itself."""
        self._trained += 1

    def enter(self) -> bool:
        """Waits until the others admit this process, if it is joining; it begins to train here.

        Returns:
            Whether this process takes part. If not, the others have finished this `fit`.

        Raises:
            NotInitializedError: if the process is in no job.
        """
        was_apart = membership.is_apart
        membership.take_part(self._trained, self._is_over)
        if was_apart and not membership.is_outside:
            self._look()
            self._own = self._told or self._own
            self.would_miss = self._is_shut_out  # the others are ahead already
        return not membership.is_apart

    def enter_or_stay_out(self) -> None:
        """Calls `enter` for a training except `fit`; stays out if the others have ended it."""
        if not self.enter():
            self.stay_out()

    def wait_for_host(self) -> None:
        """Waits at a barrier for the other ranks that join on this host.

        The ranks that train have passed this barrier before.
        """
        assert membership.launcher is not None and membership.endpoints is not None
        self._barriers += 1
        membership.launcher.barrier(self._barriers)
        while membership.endpoints.passed_barriers() < self._barriers:
            membership.wait_outside(_MOMENT)

    @contextlib.contextmanager
    def kept_whole(self) -> Iterator[None]:
        """Surrounds collectives without a record, because the result of the whole is recorded."""
        before = _without_comers.set(True)
        try:
            yield
        finally:
            _without_comers.reset(before)

    @contextlib.contextmanager
    def do_without(self) -> Iterator[bool]:
        """Surrounds collectives without a result, which joining ranks skip.

        Yields whether this process takes part: a joining rank does not.

        Raises:
            NotInitializedError: if the process is in no job.
        """
        membership.check()
        with self.kept_whole():
            yield not membership.is_apart

    def stay_out(self) -> NoReturn:
        """Waits for the end of the job, because the others cannot admit this rank."""
        assert membership.launcher is not None
        membership.launcher.outside(for_good=True)
        while True:
            membership.wait_outside()

    def _wait_for_beginning(self) -> CallLog:
        """Waits until the others begin this process's next training; returns their record."""
        assert membership.launcher is not None
        waited = 0
        while (told := self._look()) is None or told.trained < self._trained:
            if self._is_shut_out:
                self.stay_out()
            membership.wait_outside()
            waited += 1
            if waited == 2:  # one second, in which the others usually begin to train
                membership.launcher.outside(for_good=False)
        return self._caught_up()

    def _caught_up(self) -> CallLog:
        """Returns the others' record, behind the trainings that this process did by itself."""
        assert self._told is not None
        while self._told.taken < self._trained:
            self._told.skip()
        return self._told

    def _is_over(self) -> bool:
        """Whether the others have gone past this process's next training."""
        told = self._look()
        return self._is_shut_out or (told is not None and told.trained > self._trained)

    def _look(self) -> CallLog | None:
        """Reads the others' record up to their present training."""
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


comers = Replay()  # of the job of this process
membership.at_leaving(comers.forget)
