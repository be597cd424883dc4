"""The ranks of a loop with a distributed tape begin with one state: the first rank's.

| steps | when the ranks compare their state | what is of different weights until then |
|---|---|---|
| in a tf.function | when its trace is complete, before it runs | nothing |
| run eagerly | at the second step's `gradient` | the gradients of two steps |

They compare once for each variable. By then the program has had its time to broadcast by itself: in
the same trace, or after the first eager step, as Horovod's examples do; nothing is said of it then.
In the first eager step they only tell that it is one: if others trace it, nobody compares.

What is compared are the sources of `gradient`, and the state of the optimizers of Keras that update
them, but for what stays each rank's own. `fit` does this by itself, and so do elastic jobs. After
`hvd.join` the ranks may have made unequal numbers of steps, and do not compare any more: no rank
would know of another one whether it does.
"""

from __future__ import annotations

import logging
import weakref
import zlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfhvd.compat import graphs, training
from tfhvd.compat import keras as keras_compat
from tfhvd.compat.variables import key_of, tf_variable
from tfhvd.errors import UnavailableError
from tfhvd.job import process
from tfhvd.ops import allgather, broadcast_variables, sync_monitor
from tfhvd.ops.broadcast_variables import by_number
from tfhvd.ops.join import have_joined
from tfhvd.replicas import digest
from tfhvd.runtime.membership import membership
from tfhvd.runtime.process_sets import ProcessSet, has_peers

if TYPE_CHECKING:
    from tfhvd.compat.types import Optimizer, Variable
    from tfhvd.gradients.reducer import GradientReducer

_logger = logging.getLogger("tfhvd")
_EAGER, _COMPARES = 0, 1  # what a rank tells with its first eager step, and when it compares
_BEGUN = "_tfhvd_begun"  # a note on a variable: True, or what reduced its first eager gradient
_TRACED = "tfhvd/loop_start"  # a collection of the outermost graph: what is to be compared after it


class _Sources(NamedTuple):
    """What a distributed tape is asked for.

    Attributes:
        reducer: of the tape.
        shared: the variables whose gradients it reduces.
        local: those that stay each rank's own.
    """

    reducer: GradientReducer
    shared: list[Variable]
    local: list[Variable]


def begin_as_one(reducer: GradientReducer, sources: Iterable[Variable | tf.Tensor]) -> None:
    """Sees to it that the ranks have one state, where a distributed tape is asked for gradients.

    Args:
        reducer: of the tape.
        sources: what it is asked for, the same on every rank.
    """
    ranks = reducer.options.process_set
    if (
        sync_monitor.is_watched()
        or membership.is_elastic
        or not (has_peers(ranks) and ranks.included())
    ):
        return
    own = reducer.local.keys()
    variables = [v for v in sources if isinstance(tf_variable(v), tf.Variable)]
    shared = [v for v in variables if key_of(v) not in own and _begun(v) is not True]
    if not shared:
        return
    asked = _Sources(reducer, shared, [v for v in variables if key_of(v) in own])
    if tf.executing_eagerly():
        again = [v for v in shared if _begun(v) is not None and _begun(v)() is not reducer]
        new = [v for v in shared if _begun(v) is None]
        for variable in new:
            sync_monitor.notes_of(variable)[_BEGUN] = weakref.ref(reducer)
        if new and not _all_run_eagerly(reducer.options.process_set):
            _note_begun(new)
        _make_one(asked._replace(shared=again), "from the second step on")
    elif tf.inside_function():
        graph = tf.compat.v1.get_default_graph()
        [graph, *graphs.outer_graphs(graph)][-1].get_collection_ref(_TRACED).append(asked)


def _after_trace(graph: tf.Graph) -> None:
    """Does so for what a complete function's tapes are asked for."""
    traced: list[_Sources] = graph.get_collection(_TRACED)
    if not traced or graphs.outer_graphs(graph):
        return
    graph.get_collection_ref(_TRACED).clear()
    broadcasts = graphs.has_operation(graph, "TfhvdBroadcast")  # broadcast_variables
    with tf.init_scope():
        for asked in traced:
            if broadcasts:
                _note_begun(asked.shared)
            else:
                _make_one(asked, "before the first step")


try:
    graphs.after_traces(_after_trace, "give the ranks of a loop one state")
except UnavailableError as error:
    _logger.warning("%s Without this, call hvd.broadcast_variables before the first step.", error)


def _all_run_eagerly(ranks: ProcessSet) -> bool:
    """Whether no rank has traced its first step: it would compare now, and wait for the others."""
    return have_joined(ranks) or not _gathered([_EAGER, 0, 0, 0], ranks)[:, 0].any()


def _gathered(own: Sequence[int], ranks: ProcessSet) -> np.ndarray:
    """Returns the ranks' numbers, a row each."""
    with sync_monitor.of_ours():
        return allgather(tf.constant([own], tf.int64), name="loop_start", process_set=ranks).numpy()


def _make_one(asked: _Sources, when: str) -> None:
    """Gives all ranks the first one's state of what is shared, if they differ, and says so."""
    ranks = asked.reducer.options.process_set
    # A function's first trace may make variables that have their values when it runs.
    shared = [v for v in asked.shared if _begun(v) is not True and _has_value(v)]
    if not shared or have_joined(ranks):
        return
    _note_begun(shared)
    state = shared + _state_of_optimizers(asked._replace(shared=shared))
    first = ranks.ranks[0] if ranks.ranks else 0
    kinds = repr([(v.shape.as_list(), v.dtype.name) for v in map(tf_variable, state)])
    own = [_COMPARES, len(state), zlib.crc32(kinds.encode()), digest(state)]
    of_ranks = _gathered(own, ranks)
    alike = of_ranks == of_ranks[0]
    # Of a rank that has joined there is no row; what ranks have not in common, reductions name.
    if len(alike) < ranks.size() or alike.all() or not alike[:, :3].all():
        return
    with sync_monitor.of_ours():
        broadcast_variables(by_number(state), first, ranks)
    if process.rank() == first:
        _logger.warning(
            "A loop with %s: the ranks began with different weights or optimizer state. All have "
            "those of rank %d now, %s. To have it so without this line, call hvd."
            "broadcast_variables(model.variables, root_rank=%d) before the first step, and the "
            "same for optimizer.variables. For ranks that are to keep their own, give the tape "
            "equal_start=False.",
            *(asked.reducer.options.name, first, when, first),
        )


def _state_of_optimizers(asked: _Sources) -> list[Variable]:
    """Lists what the optimizers keep that update the shared variables, but for each rank's own."""
    optimizers: dict[int, Optimizer] = {}
    for variable in asked.shared:
        optimizer = sync_monitor.optimizer_of(variable)
        if optimizer is not None:
            optimizers[id(optimizer)] = optimizer
    state: list[Variable] = []
    for optimizer in optimizers.values():
        everything = [*asked.shared, *asked.local]
        own = training.slots_of(optimizer, asked.local, everything)
        keys = {key_of(v) for v in [*own, *training.not_shared_by(optimizer)]}
        kept = keras_compat.optimizer_variables(optimizer)
        state += [v for v in kept if key_of(v) not in keys and _has_value(v)]
    return state


def _begun(variable: Variable) -> Any:
    return sync_monitor.notes_of(variable).get(_BEGUN)


def _note_begun(variables: Iterable[Variable]) -> None:
    for variable in variables:
        sync_monitor.notes_of(variable)[_BEGUN] = True


def _has_value(variable: Variable) -> bool:
    return bool(tf_variable(variable).is_initialized())
