"""States of a training: what is saved at a commit, and the same on all ranks at the start."""

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

# What a collective there returns is there. On a GPU it is not yet, and where a rank is lost it
# never is, as only the next collective says; but what is saved must be there.
ON_THE_HOST = "CPU:0"


class State:
    """What `run` hands to the function that trains. Classes of your own have these four methods.

    Args:
        bcast_object: taken for Horovod's sake.
        get_rank: likewise.

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
        del bcast_object, get_rank  # Horovod's, which serves other frameworks, too.
        self._reset_callbacks: list[Callable[[], object]] = []
        self._generation: int | None = None  # that of the last look, the same on all ranks

    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], object]]) -> None:
        """Has functions called after ranks were lost, or came, before the function goes on.

        Args:
            callbacks: without arguments; such as one that sets the learning rate by `hvd.size()`.
        """
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Resets the state for the ranks that take part now; called by `run`."""
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def commit(self) -> None:
        """Saves the state, and looks whether ranks were lost, or wait to take part.

        Every rank calls it, and saves once all of them have computed what they save.

        Raises:
            HostsUpdatedInterrupt: on all ranks alike, where ranks were lost since the last one, or
                have come.
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
        """Looks whether ranks were lost, or wait to take part, without saving.

        Every rank calls it. Those that wait are let in here.

        Raises:
            HostsUpdatedInterrupt: on all ranks alike, where ranks were lost since the last commit,
                or have come.
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
        """Goes back to what was saved last, on all ranks, with those that are left; see `run`.

        Args:
            generation: the members' with which all go on; None: the ranks are to agree on it.
        """
        self.restore()
        come_to("state_restored")
        self._generation = self._latest()[0] if generation is None else generation
        come_to("went_back")

    def _latest(self) -> tuple[int, int]:
        # Ranks hear of others at different steps; they are to stop at the same one.
        with tf.device(ON_THE_HOST):
            own = tf.constant([membership.generation(), waiting_ranks()], tf.int64)
            latest, waiting = allreduce(own, op=Max, name="elastic/generation").numpy().tolist()
        return latest, waiting

    def save(self) -> None:
        """Keeps what there is, for `restore`."""
        raise NotImplementedError

    def restore(self) -> None:
        """Goes back to what was saved last."""
        raise NotImplementedError

    def sync(self) -> None:
        """Gives all ranks rank 0's state, and saves it."""
        raise NotImplementedError

    def reset(self) -> None:
        """Forgets what depends on the number of ranks."""

    def variables_of_all(self) -> Iterable[Variable]:
        """Lists the variables whose values `sync` gives all ranks, as far as they are there."""
        return []


class ObjectState(State):
    """A state of Python objects: its attributes.

    Args:
        bcast_object: taken for Horovod's sake.
        get_rank: likewise.
        **kwargs: the attributes, and their values at the beginning. They can be pickled.

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
        """Keeps the attributes."""
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

    # These two are not `save` and `restore`, because subclasses make those do more.

    def _save_attributes(self) -> None:
        self._saved = {name: copy.deepcopy(getattr(self, name)) for name in self._names}

    def _restore_attributes(self) -> None:
        for name, value in copy.deepcopy(self._saved).items():
            setattr(self, name, value)


def _wait_for_gpus() -> None:
    """Waits until all that was begun on this rank's GPUs is done: a copy from there comes last."""
    for gpu in tf.config.list_logical_devices("GPU"):
        with tf.device(gpu.name):
            tf.identity(tf.constant(0.0)).numpy()
