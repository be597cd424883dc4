"""BroadcastGlobalVariablesCallback: all ranks start from the state of one rank."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tfhvd.compat import keras as keras_compat
from tfhvd.compat.training import optimizers_of
from tfhvd.gradients.local_variables import LocalVariables
from tfhvd.keras.callbacks.base import Callback
from tfhvd.keras.wrap.first_batch import build
from tfhvd.keras.wrap.model_state import broadcast_state, process_set_of
from tfhvd.ops import allgather
from tfhvd.runtime.process_sets import ProcessSet, global_process_set

if TYPE_CHECKING:
    from tfhvd.compat.types import Logs, Variable


class BroadcastGlobalVariablesCallback(Callback):
    """Gives all ranks one rank's weights and optimizer state, before the first gradient.

    A model without variables before its first batch is built first, from the shapes of this batch.
    The broadcast includes the state of all optimizers of the model, but not the seeds of random
    layers. If the optimizer has a process set, the ranks of this set take part.

    Args:
        root_rank: the rank that sends its state; it must be in the optimizer's process set. With
            None, each rank keeps its state. Without this callback, `fit` gives all ranks the state
            of rank 0 if their states differ.
        device: the device on which the variables are broadcast, "" for the device of each variable.
        local_variables: variables that each rank keeps; they must be the same on every rank.

    Raises:
        ValueError: when training begins, if `root_rank` is not in the optimizer's process set.

    Example:
        >>> model.fit(dataset, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
    """

    meets_all_ranks = True

    def __init__(
        self,
        root_rank: int | None = 0,
        device: str = "",
        local_variables: Iterable[Variable] | None = None,
    ) -> None:
        super().__init__()
        self.root_rank = root_rank
        self.device = device
        self._local = LocalVariables()
        for variable in local_variables or ():
            self.register_local_var(variable)

    def register_local_var(self, var: Variable) -> None:
        """Excludes a variable from the broadcast.

        Args:
            var: a variable of the model, or of its optimizer.
        """
        self._local.add(var)

    def on_train_begin(self, logs: Logs = None) -> None:
        """Broadcasts now, or before the first step if the model is not built on every rank."""
        if self.root_rank is None:
            return
        ranks = self._ranks()
        members = list(ranks.ranks or range(ranks.size()))
        if self.root_rank not in members:
            raise ValueError(
                "BroadcastGlobalVariablesCallback gives the state of a rank that trains the model. "
                f"Received: root_rank={self.root_rank}. Expected: one of {members}."
            )
        # All ranks broadcast at the same place, because `fit` calls collectives before and after.
        own = tf.constant([int(keras_compat.all_built(self.model))])
        name = "BroadcastGlobalVariablesCallback/built"
        if tf.reduce_all(allgather(own, name=name, process_set=ranks) == 1):
            self._broadcast()
        else:
            self._broadcast_before_first_step()

    def _ranks(self) -> ProcessSet:
        """Returns the ranks that train the model, or all ranks if this is unknown yet."""
        return process_set_of(self.model) or global_process_set

    def _broadcast(self) -> None:
        assert self.root_rank is not None
        broadcast_state(
            self.model,
            optimizers_of(self.model),
            self.root_rank,
            self._local.keys(),
            self._ranks(),
            self.device,
        )

    def _broadcast_before_first_step(self) -> None:
        """Arranges the broadcast before the first training step, which has the first batch."""
        model, step = self.model, self.model.train_function

        def broadcast_then_step(iterator: tf.data.Iterator) -> Any:
            model.train_function = step
            built = build(model, iterator)
            if built:
                self._broadcast()
            result = step(iterator)
            if not built:
                self._broadcast()
            return result

        model.train_function = broadcast_then_step


def kept_by(callback: BroadcastGlobalVariablesCallback) -> set[int]:
    """Returns the keys of the variables that each rank keeps."""
    return set(callback._local.keys())
