"""The ranks of a loop with a distributed tape begin with one state: the first rank's.

| steps | when the ranks compare their state | computed with different weights before |
|---|---|---|
| in a tf.function | when its trace is complete, before it runs | nothing |
| run eagerly | at the second step's `gradient` | the gradients of two steps |

The ranks compare once for each variable. Until then the program can broadcast the variables itself:
in the same trace, or after the first eager step, as Horovod's examples do. There is no message in
this case. In the first eager step the ranks only tell each other that the step is eager; if other
ranks trace the step, no rank compares.

The ranks compare the sources of `gradient`, and the state of the Keras optimizers that update them,
except the parts that are local to each rank. `fit` makes the ranks equal itself, and so do elastic
jobs. After `hvd.join` the ranks do not compare any more: they may have made different numbers of
steps, so that no rank knows whether another one compares.
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
_EAGER, _COMPARES = 0, 1  # the number that a rank sends in its first eager step; when it compares
_BEGUN = "_tfhvd_begun"  # a note on a variable: True, or the reducer of its first eager gradient
_TRACED = "tfhvd/loop_start"  # a collection of the outermost graph: the sources to compare after it


class _Sources(NamedTuple):
    """The sources of a call of `gradient`.

    Attributes:
        reducer: the reducer of the tape.
        shared: the variables whose gradients it reduces.
        local: the local variables of this rank.
    """

    reducer: GradientReducer
    shared: list[Variable]
    local: list[Variable]


def begin_as_one(reducer: GradientReducer, sources: Iterable[Variable | tf.Tensor]) -> None:
    """Gives the ranks one state, when a loop calls a distributed tape's `gradient`.

    Args:
        reducer: the reducer of the tape.
        sources: the sources of the gradients, the same on every rank.
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
    """Gives the ranks one state for the sources of all tapes in a completely traced function."""
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
    """Returns whether no rank has traced its first step: such a rank would compare and wait now."""
    return have_joined(ranks) or not _gathered([_EAGER, 0, 0, 0], ranks)[:, 0].any()


def _gathered(own: Sequence[int], ranks: ProcessSet) -> np.ndarray:
    """Returns the numbers of all ranks, one row per rank."""
    with sync_monitor.of_ours():
        return allgather(tf.constant([own], tf.int64), name="loop_start", process_set=ranks).numpy()


def _make_one(asked: _Sources, when: str) -> None:
    """Gives all ranks the first rank's shared state, with a warning, if their states differ."""
    ranks = asked.reducer.options.process_set
    # The first trace of a function may make variables that get their values when it runs.
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
    # A rank that has called `hvd.join` has no row. The reductions report different variables.
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
    """Lists the state of the optimizers that update the shared variables, except local state."""
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
