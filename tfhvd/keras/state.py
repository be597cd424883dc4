"""The state of a model in training, and how ranks take over another one's."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, NamedTuple

import tensorflow as tf

from tfhvd import _compat
from tfhvd.compression import StatefulCompression
from tfhvd.keras.hooks import accumulator_of, reducer_of, reduces
from tfhvd.local_sources import key_of
from tfhvd.ops import broadcast_variables
from tfhvd.process_sets import ProcessSet, global_process_set


class _Numbered(NamedTuple):
    """A variable by its number: Keras names it otherwise where a model was built another way."""

    path: str
    value: tf.Variable


def reducing_optimizers(model: Any) -> list[Any]:
    """Lists the distributed optimizers of a model: the one that it is compiled with, and others."""
    return _attributes(model, reduces)


def optimizers_of(model: Any) -> list[Any]:
    """Lists all optimizers of a model: the one that it is compiled with, and others."""
    return _attributes(model, _compat.is_keras_optimizer)


def _attributes(model: Any, of_a_kind: Callable[[Any], bool]) -> list[Any]:
    own = [getattr(model, "optimizer", None), *vars(model).values()]
    found = {id(o): o for o in own if o is not None and of_a_kind(o)}
    return list(found.values())


def broadcast_state(
    model: Any,
    optimizers: Iterable[Any],
    root_rank: int,
    local: Collection[int] = (),
    process_set: ProcessSet = global_process_set,
) -> None:
    """Gives all ranks one rank's weights and optimizers' state; random seeds stay each rank's own.

    Args:
        model: a built model of either Keras.
        optimizers: those that train it; they are built if they are not.
        root_rank: the rank whose state it is, by its number in the job.
        local: the keys of variables that each rank keeps as they are (see `key_of`).
        process_set: the ranks that take part.
    """
    variables = _compat.model_state(model)
    for optimizer in optimizers:
        _compat.build_optimizer(optimizer, model.trainable_variables)
        variables += _compat.optimizer_variables(optimizer)
        variables += _shared_by_compression(optimizer, model.trainable_variables)
        variables += _shared_by_accumulation(optimizer)
    numbered = [
        _Numbered(str(n), _compat.tf_variable(v))
        for n, v in enumerate(variables)
        if key_of(v) not in local
    ]
    broadcast_variables(numbered, root_rank=root_rank, process_set=process_set)


def _shared_by_compression(optimizer: Any, variables: Any) -> list[Any]:
    compression = reducer_of(optimizer).options.compression if reduces(optimizer) else None
    if not isinstance(compression, StatefulCompression):
        return []
    compression.build(variables)
    return compression.shared_state


def _shared_by_accumulation(optimizer: Any) -> list[Any]:
    accumulates = getattr(optimizer, "gradient_accumulation_steps", None)
    return accumulator_of(optimizer).shared_state if accumulates and reduces(optimizer) else []
