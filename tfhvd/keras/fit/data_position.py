"""DataPosition: `fit` sets the position of its `hvd.data.Batches`, which a loop advances itself."""

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
    """Surrounds `fit`, and adds a `DataPosition` to its callbacks if its data are `Batches`.

    Args:
        arguments: the arguments of `fit`, by name.
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
    """Whether the present `fit` has an epoch of fewer steps than it knows of."""
    follows = _follows.get()
    return follows is not None and follows.is_resumed


def steps_left(begun: bool) -> int | None:
    """Returns how many steps are left in the first epoch of `fit`, if `fit` begins in its middle.

    Only one call returns a number; all others return None.

    Args:
        begun: whether `on_epoch_begin` of the callbacks has been called.
    """
    follows = _follows.get()
    return None if follows is None else follows.steps_left(begun)


def batches_of_fit() -> Batches | None:
    """Returns the `Batches` of the present `fit`; None if its data are of another kind."""
    follows = _follows.get()
    return None if follows is None else follows.batches


class DataPosition(Callback):
    """Sets the position of the batches to the epoch and step of the `fit` that trains on them.

    The first epoch of the data is the one after the last trained epoch, or the first epoch of `fit`
    if this is later. Several calls of `fit` then do not repeat the order of one epoch, and a
    resumed training does not begin with the order of the first epoch.

    With `steps_per_epoch`, the epochs of Keras are not the epochs of the data. The position then
    depends on the number of steps only.

    Args:
        batches: the data of `fit`.
        counts_alone: whether `fit` has a `steps_per_epoch`.

    Attributes:
        batches: the data of `fit`.
    """

    acts_on_batches = True

    def __init__(self, batches: Batches, counts_alone: bool) -> None:
        super().__init__()
        self.batches = batches
        self._counts_alone = counts_alone
        self._length = int(batches.cardinality())  # negative if unknown
        self._ahead: int | None = None  # the epoch of the data minus the epoch of `fit`
        self._begin = batches.position  # at the beginning of the epoch
        self._resumed = False
        self._told = False  # `steps_left` has returned its number

    @property
    def is_resumed(self) -> bool:
        """Whether the first epoch begins in its middle, and its number of steps is unknown.

        Callbacks may set the position until the epoch begins.
        """
        if self._length >= 0 and not self._counts_alone:
            return False
        return self._resumed if self._ahead is not None else self.batches.position.step > 0

    def steps_left(self, begun: bool) -> int | None:
        """Does the work of the function `steps_left`."""
        step = self.batches.position.step
        known = 0 < step < self._length and not self._counts_alone
        if self._told or not known or (self._ahead is not None) != begun:
            return None
        self._told = True
        return self._length - step

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Sets the position to the beginning of this epoch, unless it is in this epoch already."""
        at = self.batches.position
        if self._ahead is None:
            self._ahead = max(at.epoch - epoch, 0)
            self._resumed = at.step > 0
            self._told |= not self._resumed
        if not self._counts_alone and at.epoch != epoch + self._ahead:
            at = Position(epoch + self._ahead)
        self.batches.position = self._begin = at

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Advances the position by one step."""
        epoch, step = self._begin.epoch, self._begin.step + batch + 1
        if self._counts_alone and self._length > 0:
            # The next iterator of Keras continues at the end of the last one.
            epoch, step = epoch + step // self._length, step % self._length
        self.batches.position = Position(epoch, step)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Advances the position to the next epoch, if the data of this epoch are used up."""
        at = self.batches.position
        is_over = at.step >= self._length if self._length >= 0 else not self.model.stop_training
        if is_over and not self._counts_alone:
            self.batches.position = Position(at.epoch + 1)
