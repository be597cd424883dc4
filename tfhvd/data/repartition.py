"""How data are divided again when the ranks of an elastic job change."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tfhvd.ops import allgather_object
from tfhvd.runtime.membership import membership

_logger = logging.getLogger("tfhvd")

# What knows how far it is, how to read that, and how to change it.
_Place = tuple["weakref.ref[Any]", Callable[[Any], Any], Callable[[Any, Any], object]]


class Changes:
    """Knows what this process has divided among all ranks, in the order of the program."""

    def __init__(self) -> None:
        self._places: list[_Place] = []
        self._arrays_among = 0  # ranks; 0: of no arrays

    def note_epochs(self, variable: tf.Variable) -> None:
        """Takes the number of the next epoch of a dataset that is shuffled."""
        self._note(variable, int, lambda found, epoch: found.assign(epoch))

    def note_cursor(self, cursor: Any) -> None:
        """Takes what has a `position` in its data."""
        self._note(
            cursor, lambda found: found.position, lambda found, at: setattr(found, "position", at)
        )

    def _note(
        self, thing: Any, read: Callable[[Any], Any], write: Callable[[Any, Any], object]
    ) -> None:
        if membership.is_elastic:
            alive = [place for place in self._places if place[0]() is not None]
            self._places = [*alive, (weakref.ref(thing), read, write)]

    def note_arrays(self, size: int) -> None:
        """Records that arrays were divided among so many ranks."""
        self._arrays_among = size

    def agree_on_places(self) -> None:
        """Gives all ranks the first one's epochs and positions, so that they have one order.

        All ranks call it. A rank that has joined counts from 0, and others may have read more of
        their data.
        """
        alive = [(thing, *how) for found, *how in self._places if (thing := found()) is not None]
        own = [read(thing) for thing, read, _ in alive]
        first, *others = allgather_object(own, name="tfhvd.shard.epochs")
        if all(len(places) == len(first) for places in others):
            for (thing, _, write), place in zip(alive, first):
                write(thing, place)

    def warn_of_arrays(self) -> None:
        """Warns, once for each change, where arrays are divided among the ranks that there were."""
        topology = membership.require_topology()
        size = topology.size
        if self._arrays_among in (0, size):
            return
        if topology.rank == 0:
            _logger.warning(
                "hvd.shard has divided arrays among %d ranks, and %d take part now: each keeps its "
                "part, so that samples are missing from an epoch, or in it twice. A dataset is "
                "divided again in each epoch: "
                "hvd.shard(tf.data.Dataset.from_tensor_slices((x, y))).batch(...)",
                self._arrays_among,
                size,
            )
        self._arrays_among = size

    def forget(self) -> None:
        """Forgets everything: the job is over."""
        self._places.clear()
        self._arrays_among = 0


def place_now() -> tuple[np.int64, np.int64]:
    """Returns this rank's number, and how many ranks there are now."""
    membership.refresh()
    topology = membership.require_topology()
    return np.int64(topology.rank), np.int64(topology.size)


changes = Changes()  # of this process's job
membership.at_leaving(changes.forget)
