"""run: calls the function that trains, again after each change of the members."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import tensorflow as tf

from tfhvd.compat.variables import tf_variable
from tfhvd.elastic.errors import HorovodInternalError, HostsUpdatedInterrupt
from tfhvd.errors import PeerLostError
from tfhvd.gradients import reset
from tfhvd.ops.objects import ROOT_IS_LOST
from tfhvd.runtime.elastic.replay import comers
from tfhvd.runtime.elastic.warmup import rehearsal, warn_of_failure
from tfhvd.runtime.failpoints import come_to
from tfhvd.runtime.membership import membership

_Result = TypeVar("_Result")
# The end of the error after which a job on GPUs goes back to its last commit.
_ON_GPUS = "the job continues from its last commit"  # cc/elastic/generation_monitor.h


def run(func: Callable[..., _Result]) -> Callable[..., _Result]:
    """Decorates a function that trains, so that it runs in an elastic job.

    Every rank calls the decorated function. It gives all ranks rank 0's state, and calls `func`. If
    a commit finds that ranks have failed, or admits joining ranks, it calls the state's reset
    callbacks, and then `func` again. Nothing is rolled back, because no step was lost. A rank that
    joined gets rank 0's state. All ranks go back to the last commit in two cases: a broadcast
    cannot finish because its root has failed, and any failure in a job with collectives on GPUs.

    A joining rank warms up before the others admit it: it calls `func` alone, up to the first step
    of `fit` or the first commit, and restores the state that it had before. The other ranks then
    need not wait until the joining rank has read its data and compiled its step.

    Args:
        func: the function; its first argument is a `State`.

    Returns:
        A function with the same arguments.

    Raises:
        HorovodInternalError: by the decorated function, if another collective cannot finish without
            a failed rank, as in a job that is not elastic.

    Example:
        >>> @hvd.elastic.run
        ... def train(state):
        ...     state.commit()
        >>> train(hvd.elastic.ObjectState(epoch=0))
    """

    @functools.wraps(func)
    def trains(state: Any, *args: Any, **kwargs: Any) -> _Result:
        membership.lets_in_at_commits = True
        train = functools.partial(func, state, *args, **kwargs)
        if membership.is_outside:
            comers.expect(map(tf_variable, state.variables_of_all()))
            _rehearse(train, state)
            comers.enter_or_stay_out()
        with _training():
            return _train(train, state)

    return trains


@contextlib.contextmanager
def _training() -> Iterator[None]:
    lets_in = comers.begin_training()
    try:
        yield
    finally:
        if lets_in:
            comers.end_training()


def _train(train: Callable[[], _Result], state: Any) -> _Result:
    prepare: Callable[[], object] = functools.partial(_sync, state)
    while True:
        try:
            prepare()
            return train()
        except HostsUpdatedInterrupt as interrupt:
            prepare = functools.partial(_go_on, state, interrupt.skip_sync)
        except (tf.errors.AbortedError, PeerLostError) as error:
            if _ON_GPUS in str(error) and (members := membership.go_back()) is not None:
                prepare = functools.partial(_go_back, state, members)
            elif ROOT_IS_LOST in str(error):
                # All other ranks raise the same error here, with the same members.
                membership.refresh()
                prepare = functools.partial(_go_back, state)
            else:
                raise HorovodInternalError(str(error)) from error


def _rehearse(train: Callable[[], object], state: Any) -> None:
    state.save()
    try:
        with reset.nothing_left(), rehearsal.of_function() as begun:
            if begun:
                train()
    except Exception:
        warn_of_failure("the function of hvd.elastic.run")
    state.restore()


def _go_on(state: Any, skip_sync: bool) -> None:
    state.on_reset()
    come_to("state_reset")
    if not skip_sync:
        reset.begin_anew()  # a rank that joined has reduced nothing
        _sync(state)


def _go_back(state: Any, generation: int | None = None) -> None:
    state.restore_together(generation)
    reset.begin_anew()  # ranks were at different steps
    state.on_reset()
    _sync(state)


def _sync(state: Any) -> None:
    come_to("state_syncing")
    state.sync()
    come_to("state_synced")
