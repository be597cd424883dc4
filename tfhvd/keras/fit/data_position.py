"""`fit` tells the batches that it trains on how far it is, as a loop does by itself."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tfhvd.data.batches import Batches
from tfhvd.data.cursor import Position
from tfhvd.keras.callbacks.base import Callback
from tfhvd.keras.callbacks.lists import inserted

if TYPE_CHECKING:
    from tfhvd.compat.types import Logs


_follows: contextvars.ContextVar[DataPosition | None] = contextvars.ContextVar(
    "follows", default=None
)


@contextlib.contextmanager
def followed(arguments: dict[str, Any]) -> Iterator[None]:
    """Is around a `fit`, and adds what follows the position of its data, if they have one.

    Args:
        arguments: those that `fit` is given, by name.
    """
    data = arguments.get("x")
    if not isinstance(data, Batches):
        yield
        return
    counts_alone = arguments.get("steps_per_epoch") is not None
    follows = DataPosition(data, counts_alone)
    before = _follows.set(follows)
    try:
        with inserted([follows], arguments.get("callbacks")) as arguments["callbacks"]:
            yield
    finally:
        _follows.reset(before)


def is_resumed() -> bool:
    """Whether the `fit` that is under way has epochs of fewer steps than it knows of."""
    follows = _follows.get()
    return follows is not None and follows.is_resumed


def steps_left(begun: bool) -> int | None:
    """Returns how many steps the first epoch of a `fit` has, once, if it begins in its middle.

    Args:
        begun: whether callbacks know already that the epoch has begun.
    """
    follows = _follows.get()
    return None if follows is None else follows.steps_left(begun)


def batches_of_fit() -> Batches | None:
    """Returns the batches that the `fit` that is under way trains on, if its data are such."""
    follows = _follows.get()
    return None if follows is None else follows.batches


class DataPosition(Callback):
    """Sets the position of the batches to the epoch and step of the `fit` that trains on them.

    `fit` goes on with the epoch after the last one that was trained on, or with its own first
    epoch, if that is later: so several calls of `fit` do not repeat one order, and a training that
    is resumed does not begin with the first.

    With `steps_per_epoch` Keras cuts the epochs of the data as it likes: steps are counted alone.

    Args:
        batches: what it trains on.
        counts_alone: whether there is a `steps_per_epoch`.

    Attributes:
        batches: the same.
    """

    acts_on_batches = True

    def __init__(self, batches: Batches, counts_alone: bool) -> None:
        super().__init__()
        self.batches = batches
        self._counts_alone = counts_alone
        self._length = int(batches.cardinality())  # negative where it is not known
        self._ahead: int | None = None  # of the epochs of `fit`
        self._begin = batches.position  # of the epoch
        self._resumed = False
        self._told = False  # how many steps are left in the first epoch

    @property
    def is_resumed(self) -> bool:
        """Whether the first epoch has an unknown number of steps, for it begins in its middle.

        Callbacks may set the position until it begins.
        """
        if self._length >= 0 and not self._counts_alone:
            return False
        return self._resumed if self._ahead is not None else self.batches.position.step > 0

    def steps_left(self, begun: bool) -> int | None:
        """See the function of this name."""
        step = self.batches.position.step
        known = 0 < step < self._length and not self._counts_alone
        if self._told or not known or (self._ahead is not None) != begun:
            return None
        self._told = True
        return self._length - step

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Sets the position to this epoch, unless it is in it already."""
        at = self.batches.position
        if self._ahead is None:
            self._ahead = max(at.epoch - epoch, 0)
            self._resumed = at.step > 0
            self._told |= not self._resumed
        if not self._counts_alone and at.epoch != epoch + self._ahead:
            at = Position(epoch + self._ahead)
        self.batches.position = self._begin = at

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Takes note of a step."""
        epoch, step = self._begin.epoch, self._begin.step + batch + 1
        if self._counts_alone and self._length > 0:
            # A new iterator of Keras begins where the last one has ended.
            epoch, step = epoch + step // self._length, step % self._length
        self.batches.position = Position(epoch, step)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Goes to the next epoch, where this one is over."""
        at = self.batches.position
        is_over = at.step >= self._length if self._length >= 0 else not self.model.stop_training
        if is_over and not self._counts_alone:
            self.batches.position = Position(at.epoch + 1)
