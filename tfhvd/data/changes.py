"""What becomes of data that are divided, where the ranks of an elastic job change."""

from __future__ import annotations

import logging
import weakref

import numpy as np
import tensorflow as tf

from tfhvd.ops import allgather_object
from tfhvd.runtime.membership import membership

_logger = logging.getLogger("tfhvd")


class Changes:
    """Knows what this process has divided among all ranks, in the order of the program."""

    def __init__(self) -> None:
        self._epochs: list[weakref.ref[tf.Variable]] = []
        self._arrays_among = 0  # ranks; 0: of no arrays

    def note_epochs(self, variable: tf.Variable) -> None:
        """Takes the number of the next epoch of a dataset that is shuffled."""
        if membership.is_elastic:
            alive = [found for found in self._epochs if found() is not None]
            self._epochs = [*alive, weakref.ref(variable)]

    def note_arrays(self, size: int) -> None:
        """Takes note that arrays were divided among so many ranks."""
        self._arrays_among = size

    def agree_on_epochs(self) -> None:
        """Gives all ranks the first one's epochs, so that they shuffle alike; all call it.

        A rank that has come counts from 0, and others may have looked at more of their data.
        """
        variables = [variable for found in self._epochs if (variable := found()) is not None]
        own = [int(variable) for variable in variables]
        first, *others = allgather_object(own, name="tfhvd.shard.epochs")
        if all(len(epochs) == len(first) for epochs in others):
            for variable, epoch in zip(variables, first):
                variable.assign(epoch)

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
                "divided anew in each epoch: "
                "hvd.shard(tf.data.Dataset.from_tensor_slices((x, y))).batch(...)",
                self._arrays_among,
                size,
            )
        self._arrays_among = size

    def forget(self) -> None:
        """Begins anew: the job is over."""
        self._epochs.clear()
        self._arrays_among = 0


def place_now() -> tuple[np.int64, np.int64]:
    """Returns this rank's number, and how many ranks there are now."""
    membership.refresh()
    topology = membership.require_topology()
    return np.int64(topology.rank), np.int64(topology.size)


changes = Changes()  # of this process's job
membership.at_leaving(changes.forget)
