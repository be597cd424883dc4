"""StartAgreement and LearningRates: how a `fit` begins alike on all ranks.

A callback may set the epoch, the state or the learning rate on one rank only: BackupAndRestore,
which only rank 0 should have, or ReduceLROnPlateau without an average of metrics. All ranks take
what rank 0 has. Ranks that had something else warn of this.
"""

from __future__ import annotations

import enum
import logging
import math
import zlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tfhvd.compat import keras as keras_compat
from tfhvd.compat import training
from tfhvd.data.repartition import changes
from tfhvd.job import process
from tfhvd.keras.joining.histories import Past
from tfhvd.keras.wrap import learning_rate
from tfhvd.keras.wrap.first_batch import build
from tfhvd.keras.wrap.model_state import take_over, updates_of
from tfhvd.runtime.membership import membership

if TYPE_CHECKING:
    from tfhvd.compat.types import Model
    from tfhvd.keras.checks.divergence import DivergenceCheck
    from tfhvd.keras.fit.fit_ranks import FitRanks
    from tfhvd.keras.fit.one_state import OneState
    from tfhvd.keras.joining.fit_warmup import Coming
    from tfhvd.ops.sync_monitor import Step

_logger = logging.getLogger("tfhvd")
_UNKNOWN = _LIKE_NOBODY = -1


class Agreement(enum.Enum):
    """How far the ranks have agreed on the start: OPEN -> (AWAITS_MODELS ->) DONE."""

    OPEN = "not before the first step, if only a tape in it shows that gradients are reduced"
    AWAITS_MODELS = "all ranks take rank 0's state as soon as all models are built"
    DONE = "done"


class Start:
    """The epoch and the step at which a `fit` of a model begins.

    Attributes:
        initial_epoch: the argument of `fit`.
    """

    def __init__(self, model: Model) -> None:
        self.initial_epoch = 0
        self._model = model
        self._undo: Callable[[], None] | None = None

    def own(self, steps: int | None) -> tuple[int, int]:
        """Returns this rank's epoch, and the step in it.

        Args:
            steps: of an epoch, None if unknown.
        """
        return training.where_fit_begins(self._model, self.initial_epoch, steps)

    def take(self, start: tuple[int, int], own: tuple[int, int], root: int) -> None:
        """Begins with another rank's epoch and step, and logs it; the caller takes the state."""
        epoch, step = (int(number) for number in start)
        self._undo = training.begin_fit_at(self._model, epoch, step)
        self.say(own, (epoch, step), root)

    @staticmethod
    def say(own: tuple[int, int], start: tuple[int, int], root: int) -> None:
        """Logs on this rank that it begins at the epoch and step of another rank."""
        if membership.came_later:
            _logger.info("fit on rank %d begins at epoch %d, step %d.", process.rank(), *start)
        elif process.rank() != root:
            _logger.warning(
                "fit on rank %d continues from rank %d's state: it was at epoch %d, step %d here "
                "and at epoch %d, step %d there, or the numbers of updates differed. Pass the same "
                "initial_epoch on every rank. If only rank %d has BackupAndRestore, this is as "
                "intended.",
                process.rank(),
                root,
                *own,
                *start,
                root,
            )

    def undo(self) -> None:
        """Undoes `take`: Keras decides again at which epoch the model's next `fit` begins."""
        if self._undo is not None:
            self._undo()
            self._undo = None


class StartAgreement:
    """What the ranks agree on before they train; after ranks have joined, they agree again.

    Args:
        model: of either Keras.
        step: the record of the step.
        ranks: the ranks of this `fit`.
        state: compares the ranks' states.
        came: how this rank has joined the `fit`.

    Attributes:
        agreement: how far the ranks have agreed.
        past: gives joining ranks the history of the earlier epochs.
    """

    def __init__(
        self, model: Model, step: Step, ranks: FitRanks, state: OneState, came: Coming
    ) -> None:
        self.agreement = Agreement.OPEN
        self.past = Past(model)
        self._model = model
        self._step = step
        self._ranks = ranks
        self._state = state
        self._start = Start(model)
        self._traces_otherwise = came.traces_otherwise
        self._epochs_differ = False  # the ranks were given different initial epochs

    @property
    def initial_epoch(self) -> int:
        """The argument of `fit`, after `agree_on_argument`."""
        return self._start.initial_epoch

    def undo(self) -> None:
        """Let Keras decide again at which epoch the model's next `fit` begins."""
        self._start.undo()

    def agree_on_steps(
        self,
        params: dict[str, Any],
        replicas: DivergenceCheck,
        trace_again: Callable[[], None] | None,
    ) -> None:
        """Agree on the steps of an epoch, for callbacks: the largest number of any rank.

        Args:
            params: of Keras' callbacks.
            replicas: the check whose interval the ranks agree on, too.
            trace_again: called if the ranks have traced steps with different names; None while
                this rank trains.
        """
        traced = zlib.crc32("\n".join(sorted(self._step.names)).encode())  # 0 for none
        if self._traces_otherwise:
            traced, self._traces_otherwise = _LIKE_NOBODY, False
        own = [params.get("steps") or _UNKNOWN, traced, *replicas.wanted()]
        told = self._ranks.gather("steps", own)
        if trace_again is not None and len(set(told[:, 1]) - {0}) > 1:
            trace_again()
        replicas.take(told[0, 2:])
        if (told[:, 0] != _UNKNOWN).all():
            params["steps"] = int(told[:, 0].max())

    def agree_on_argument(self, arguments: dict[str, Any]) -> None:
        """Agree on the `initial_epoch` of `fit` before tf_keras prepares the data with it."""
        own = self._start.initial_epoch = arguments.get("initial_epoch") or 0
        if self._ranks.are_several:
            [epoch, *others] = self._ranks.gather("initial_epoch", [own])[:, 0]
            self._epochs_differ = any(other != epoch for other in others)
            if own != epoch:
                self._start.initial_epoch = arguments["initial_epoch"] = int(epoch)
                self._start.say((own, 0), (int(epoch), 0), self._ranks.numbers[0])

    def agree_on_epoch(self, steps: int | None) -> None:
        """Begin at rank 0's epoch and step, after the user's callbacks.

        Args:
            steps: of an epoch; None if unknown.
        """
        self.agree_on_state(self._start.own(steps))

    def agree_on_state(self, own: tuple[int, int]) -> None:
        """Begin at rank 0's epoch and step, with rank 0's state.

        Args:
            own: the epoch and step at which this rank begins.
        """
        self.agreement = Agreement.DONE
        if membership.is_elastic and not self._ranks.are_a_part:
            changes.agree_on_places()
            self.past.begin()
        ready = keras_compat.all_built(self._model)
        told = [*own, updates_of(self._model), ready, *self._state.at_start(self._step, ready)]
        starts = self._ranks.gather("start", told)
        alike = not self._epochs_differ and bool((starts[:, :3] == starts[0, :3]).all())
        one = alike and not self._state.is_to_be_made(starts[:, 3:])
        if one or not self._ranks.are_all_in(starts):
            return
        if tuple(starts[0, :2]) != own:
            self._start.take(tuple(starts[0, :2]), own, self._ranks.numbers[0])
        if starts[:, 3].all():
            self._take_first_state(says=alike)
        else:
            self.agreement = Agreement.AWAITS_MODELS

    def _take_first_state(self, says: bool) -> None:
        self.take_state(0)
        if says and not membership.came_later and self._ranks.is_first:
            self._state.say_start(self._ranks.numbers[0])

    def take_state(self, rank: int) -> None:
        """Take over the state of the rank at this place of the process set. A collective."""
        take_over(self._model, self._step, rank, self._ranks.process_set, self._state.kept)

    def before_step(self, iterator: Any) -> None:
        """If the ranks wait for models that are not built yet: build this one, and take the state.

        Args:
            iterator: of the data, from which a batch is taken that the step gets, too.
        """
        if self.agreement is Agreement.AWAITS_MODELS and build(self._model, iterator):
            self.agreement = Agreement.DONE
            own = [True, *self._state.at_start(self._step, ready=True)]
            self._take_first_state(says=self._state.is_to_be_made(self._ranks.gather("built", own)))

    def after_step(self) -> None:
        """If the step has built the model, and not the data: take the state now."""
        if self.agreement is Agreement.AWAITS_MODELS:
            self.agreement = Agreement.DONE
            self.take_state(0)


class LearningRates:
    """The learning rates of a model's optimizers at the beginning of each epoch of one `fit`."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._said: set[str] = set()
        # A joining rank has received rank 0's rate from before the callbacks: no reason to warn.
        self._just_came = membership.came_later

    def packed(self) -> list[int]:
        """Returns the 64 bits of each optimizer's rate; the rate is NaN if it is not a number."""
        rates = []
        for optimizer in training.optimizers_of(self._model):
            try:
                rates.append(learning_rate.get(optimizer))
            except (AttributeError, TypeError, ValueError):
                rates.append(math.nan)
        return [int(bits) for bits in np.asarray(rates, np.float64).view(np.int64)]

    def take(self, packed: Sequence[int], root: int, epoch: int, quiet: bool = False) -> None:
        """Sets the rates to those of another rank; warns once if they differed, unless `quiet`."""
        quiet, self._just_came = quiet or self._just_came, False
        rates = np.asarray(packed, np.int64).view(np.float64)
        optimizers = training.optimizers_of(self._model)
        for optimizer, bits, rate in zip(optimizers, self.packed(), map(float, rates)):
            mine = float(np.int64(bits).view(np.float64))
            if mine == rate or math.isnan(mine) or math.isnan(rate):
                continue
            try:
                learning_rate.put(optimizer, rate)
            except ValueError:  # a schedule
                self._say("cannot take", "is another schedule here", mine, rate, root, epoch)
            else:
                if not quiet:
                    self._say("takes", "was set here", mine, rate, root, epoch)

    def _say(self, does: str, why: str, mine: float, rate: float, root: int, epoch: int) -> None:
        if does in self._said:
            return
        self._said.add(does)
        _logger.warning(
            "fit on rank %d %s rank %d's learning rate, from epoch %d on: %g %s, and rank %d has "
            "%g. Pass the callbacks that set the learning rate on every rank, after "
            "MetricAverageCallback.",
            *(process.rank(), does, root, epoch, mine, why, root, rate),
        )
