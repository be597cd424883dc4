"""States of a training: saved by each commit, and equal on all ranks at the start."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tfhvd.elastic.errors import HostsUpdatedInterrupt
from tfhvd.job import process
from tfhvd.ops import Max, allreduce, broadcast_object
from tfhvd.ops.admission import let_in, waiting_ranks
from tfhvd.runtime.elastic.replay import comers
from tfhvd.runtime.elastic.warmup import rehearsal
from tfhvd.runtime.failpoints import come_to
from tfhvd.runtime.membership import membership

if TYPE_CHECKING:
    from tfhvd.compat.types import Variable

# The result of a collective on the host is complete when the collective returns. On a GPU it is
# not, and if a rank has failed it never will be, which only the next collective reports. A commit
# must save complete values.
ON_THE_HOST = "CPU:0"


class State:
    """The state that `run` passes to the function that trains. Your own classes need four methods.

    Args:
        bcast_object: ignored; Horovod has this argument.
        get_rank: ignored, as bcast_object is.

    Example:
        >>> class Steps(hvd.elastic.State):
        ...     def save(self): ...
        ...     def restore(self): ...
        ...     def sync(self): ...
        ...     def reset(self): ...
    """

    def __init__(
        self,
        bcast_object: Callable[..., Any] | None = None,
        get_rank: Callable[[], int] | None = None,
    ) -> None:
        del bcast_object, get_rank  # Horovod needs them for other frameworks.
        self._reset_callbacks: list[Callable[[], object]] = []
        self._generation: int | None = None  # at the last commit or check, the same on all ranks

    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], object]]) -> None:
        """Registers functions that are called when the members have changed, before `func` is.

        Args:
            callbacks: functions without arguments, such as one that sets the learning rate by
                `hvd.size()`.
        """
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Resets the state for the present members; `run` calls it."""
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def commit(self) -> None:
        """Saves the state, and checks whether ranks have failed or wait to join.

        Every rank calls it. A rank saves when all ranks have computed the values to save.

        Raises:
            HostsUpdatedInterrupt: on all ranks, if ranks have failed or joined since the last
                commit.
        """
        rehearsal.end_of_function()
        _wait_for_gpus()
        come_to("commit_begins")
        updated = self._updated()
        come_to("commit_agreed")
        self.save()
        come_to("commit_saved")
        if updated is not None:
            raise updated

    def check_host_updates(self) -> None:
        """Checks whether ranks have failed or wait to join, without saving.

        Every rank calls it. It admits the ranks that wait.

        Raises:
            HostsUpdatedInterrupt: on all ranks, if ranks have failed or joined since the last
                commit.
        """
        rehearsal.end_of_function()
        updated = self._updated()
        if updated is not None:
            raise updated

    def _updated(self) -> HostsUpdatedInterrupt | None:
        if not membership.is_elastic:
            return None
        comers.enter_or_stay_out()
        comers.begin_training()
        if self._generation is None:
            self._generation = membership.admitted()
        latest, waiting = self._latest()
        others_are_in = waiting > 0 and let_in()
        if others_are_in:
            latest = membership.admitted()
        if latest > self._generation:
            self._generation = latest
            membership.refresh()
            return HostsUpdatedInterrupt(skip_sync=not others_are_in)
        return None

    def restore_together(self, generation: int | None = None) -> None:
        """Restores the last commit on all remaining ranks; see `run`.

        Args:
            generation: of the members with which all ranks continue; None if they must agree on it.
        """
        self.restore()
        come_to("state_restored")
        self._generation = self._latest()[0] if generation is None else generation
        come_to("went_back")

    def _latest(self) -> tuple[int, int]:
        # Ranks learn of a change at different steps, and must all stop at the same step.
        with tf.device(ON_THE_HOST):
            own = tf.constant([membership.generation(), waiting_ranks()], tf.int64)
            latest, waiting = allreduce(own, op=Max, name="elastic/generation").numpy().tolist()
        return latest, waiting

    def save(self) -> None:
        """Saves the state in memory, for `restore`."""
        raise NotImplementedError

    def restore(self) -> None:
        """Restores the last saved state."""
        raise NotImplementedError

    def sync(self) -> None:
        """Gives all ranks rank 0's state, and saves it."""
        raise NotImplementedError

    def reset(self) -> None:
        """Drops everything that depends on the number of ranks."""

    def variables_of_all(self) -> Iterable[Variable]:
        """Lists the variables that `sync` makes equal on all ranks, if they exist already."""
        return []


class ObjectState(State):
    """A state of Python objects, which are its attributes.

    Args:
        bcast_object: ignored; Horovod has this argument.
        get_rank: ignored, as bcast_object is.
        **kwargs: the attributes with their first values, which pickle must be able to write.

    Example:
        >>> state = hvd.elastic.ObjectState(epoch=0, batch=0)
        >>> state.epoch += 1
        >>> state.restore()
        >>> state.epoch
        0
    """

    def __init__(
        self,
        bcast_object: Callable[..., Any] | None = None,
        get_rank: Callable[[], int] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(bcast_object, get_rank)
        self._saved: dict[str, Any] = {}
        self._names = tuple(kwargs)
        for name, value in kwargs.items():
            setattr(self, name, value)
        self._save_attributes()

    def save(self) -> None:
        """Saves the attributes."""
        self._save_attributes()

    def restore(self) -> None:
        """Gives the attributes their last saved values."""
        self._restore_attributes()

    def sync(self) -> None:
        """Gives all ranks rank 0's attributes, and saves them."""
        self._save_attributes()
        if self._saved and process.size() > 1:
            self._saved = broadcast_object(self._saved, root_rank=0, name="elastic/state")
            self._restore_attributes()

    # `save` and `restore` do not stand here themselves, because subclasses extend them.

    def _save_attributes(self) -> None:
        self._saved = {name: copy.deepcopy(getattr(self, name)) for name in self._names}

    def _restore_attributes(self) -> None:
        for name, value in copy.deepcopy(self._saved).items():
            setattr(self, name, value)


def _wait_for_gpus() -> None:
    """Waits until this rank's GPUs have done all work: a copy from a GPU comes after the rest."""
    for gpu in tf.config.list_logical_devices("GPU"):
        with tf.device(gpu.name):
            tf.identity(tf.constant(0.0)).numpy()
