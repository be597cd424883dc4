"""OneState: the ranks of a `fit` begin and end with equal states, whatever their callbacks do."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tfhvd.compat import adapted
from tfhvd.keras.callbacks.broadcast_global_variables import (
    BroadcastGlobalVariablesCallback,
    kept_by,
)
from tfhvd.keras.checks import digests
from tfhvd.keras.wrap.model_state import is_on_first_rank

if TYPE_CHECKING:
    import numpy as np

    from tfhvd.compat.types import Model
    from tfhvd.keras.callbacks.base import Callback
    from tfhvd.keras.checks.same_data import SameData
    from tfhvd.ops.sync_monitor import Step

_logger = logging.getLogger("tfhvd")


class OneState:
    """The digests that one rank sends of its state, and what all ranks conclude from them.

    Args:
        model: of either Keras.
        callbacks: tfhvd's callbacks of the `fit`.
        data: the data of `fit`.

    Attributes:
        data: the data of `fit`.
        kept: the keys of the variables that each rank keeps because of a callback.
    """

    def __init__(self, model: Model, callbacks: Sequence[Callback], data: SameData) -> None:
        self.data = data
        self._model = model
        self._callbacks = callbacks
        given = [c for c in callbacks if isinstance(c, BroadcastGlobalVariablesCallback)]
        self._broadcasts = any(callback.root_rank is not None for callback in given)
        self._stays_apart = bool(given) and not self._broadcasts
        self.kept = {key for callback in given for key in kept_by(callback)}
        self._before_end = 0

    def at_start(self, step: Step, ready: bool) -> list[int]:
        """Returns three digests of the state, and one of the data; 0 for a missing digest.

        The digests of the state are 0 before all variables exist, and after a callback has restored
        each rank's state, which may differ between ranks.
        """
        state = [0, 0, 0]
        restored = any(callback.has_restored for callback in self._callbacks)
        if ready and not (self._stays_apart or restored):
            own = digests.of_trained(self._model, step, self.kept)
            state = [own, *digests.of_others(self._model, self.kept)]
        return [*state, self.data.at_start()]

    def is_to_be_made(self, of_ranks: np.ndarray) -> bool:
        """Whether the ranks begin with different states, or with a model without variables yet.

        Warns if all ranks have the same data. Warns as well if layers are adapted to different data
        and keep this outside of variables, so that no broadcast can make them equal.

        Args:
            of_ranks: a row for each rank: whether it has all variables, and the digests of
                `at_start`.
        """
        self.data.look(of_ranks[:, 4])
        if not of_ranks[:, 0].all():
            return not (self._broadcasts or self._stays_apart)
        if (of_ranks[:, 3] != of_ranks[0, 3]).any() and is_on_first_rank(self._model):
            self._say_held_apart()
        return bool((of_ranks[:, 1:3] != of_ranks[0, 1:3]).any())

    def _say_held_apart(self) -> None:
        """Warns of the layers that compute with other data on other ranks, and will continue so."""
        names = adapted.held_apart(self._model)[0]
        _logger.warning(
            "fit: layers of '%s' were adapted to other data on each rank: their vocabularies, "
            "boundaries or constants differ, and no broadcast of variables gives all ranks the "
            "same ones. Layers that have such: %s. Adapt them to the same data on every rank, or "
            "write layer.set_vocabulary(hvd.broadcast_object(layer.get_vocabulary(), 0)) before "
            "fit.",
            self._model.name,
            ", ".join(names),
        )

    def say_start(self, root: int) -> None:
        """Warns that the ranks began with different states; one rank calls it."""
        _logger.warning(
            "fit: the ranks began with different weights or optimizer state of '%s'. All have "
            "those of rank %d now. To have it so without this line, pass "
            "hvd.callbacks.BroadcastGlobalVariablesCallback(%d) on every rank; for ranks that are "
            "to keep their own, BroadcastGlobalVariablesCallback(None).",
            self._model.name,
            root,
            root,
        )

    def note_before_end(self, step: Step) -> None:
        """Computes the digest before the callbacks' `on_train_end`."""
        self._before_end = digests.of_trained(self._model, step, self.kept)

    def at_end(self, step: Step) -> list[int]:
        """Returns a digest of the state, and whether an `on_train_end` has changed the state."""
        own = digests.of_trained(self._model, step, self.kept)
        return [own, own != self._before_end]

    def root_at_end(self, of_ranks: np.ndarray) -> int | None:
        """Returns the place of the rank whose state all ranks take at the end; None if all agree.

        It is the first rank whose callbacks have changed the state at the end, as EarlyStopping
        does when it restores the best weights.

        Args:
            of_ranks: the result of `at_end` of each rank, a row each.
        """
        if self._stays_apart or (of_ranks[:, 0] == of_ranks[0, 0]).all():
            return None
        return int(of_ranks[:, 1].argmax())

    def say_end(self, root: int) -> None:
        """Warns that the ranks had different states at the end; one rank calls it."""
        _logger.warning(
            "fit: at its end the ranks had different weights or optimizer state of '%s'. All have "
            "those of rank %d now. Pass callbacks that change weights, as "
            "EarlyStopping(restore_best_weights=True) does, on every rank, behind "
            "MetricAverageCallback.",
            self._model.name,
            root,
        )
