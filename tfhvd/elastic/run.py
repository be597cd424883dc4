"""run: what calls the function that trains."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import tensorflow as tf

from tfhvd.elastic.errors import HorovodInternalError, HostsUpdatedInterrupt
from tfhvd.errors import PeerLostError
from tfhvd.runtime.membership import membership

_Result = TypeVar("_Result")


def run(func: Callable[..., _Result]) -> Callable[..., _Result]:
    """Makes a function that trains one of an elastic job: a decorator.

    Called on every rank, it gives all of them rank 0's state, and calls the function. Where a
    commit finds that ranks were lost, or lets in others, it calls the state's reset callbacks, and
    the function anew: nothing is rolled back, for no step was lost. Who has come gets rank 0's
    state.

    Args:
        func: its first argument is a `State`.

    Returns:
        A function with the same arguments.

    Raises:
        HorovodInternalError: by that function, if a collective cannot be finished without a rank
            that is lost, as everywhere in a job that is not elastic.

    Example:
        >>> @hvd.elastic.run
        ... def train(state):
        ...     state.commit()
        >>> train(hvd.elastic.ObjectState(epoch=0))
    """

    @functools.wraps(func)
    def trains(state: Any, *args: Any, **kwargs: Any) -> _Result:
        membership.lets_in_at_commits = True
        try:
            synchronized = False
            while True:
                if not synchronized:
                    state.sync()
                try:
                    return func(state, *args, **kwargs)
                except HostsUpdatedInterrupt as interrupt:
                    synchronized = interrupt.skip_sync
                    state.on_reset()
        except (tf.errors.AbortedError, PeerLostError) as error:
            raise HorovodInternalError(str(error)) from error

    return trains
