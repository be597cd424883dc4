"""The state of a model in training, and the functions that give all ranks one rank's state."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import nullcontext
from typing import TYPE_CHECKING

import tensorflow as tf

from tfhvd.compat import adapted, training
from tfhvd.compat import keras as keras_compat
from tfhvd.compat.variables import key_of
from tfhvd.compression import has_state
from tfhvd.job import process
from tfhvd.keras.wrap.hooks import accumulator_of, reducer_of, reduces
from tfhvd.ops import allgather_object, broadcast_variables
from tfhvd.ops.broadcast_variables import by_number
from tfhvd.ops.objects import ROOT_IS_LOST
from tfhvd.ops.sync_monitor import Step
from tfhvd.runtime.membership import membership
from tfhvd.runtime.process_sets import ProcessSet, global_process_set

if TYPE_CHECKING:
    from tfhvd.compat.types import Model, Optimizer, Variable

_STEP = "_tfhvd_step"  # an attribute of Keras' train functions


def may_reduce(model: Model) -> bool:
    """Whether `fit` of a model may reduce gradients, as far as known before the first step."""
    return bool(reducing_optimizers(model)) or keras_compat.has_own_train_step(model)


def reducing_optimizers(model: Model) -> list[Optimizer]:
    """Lists the distributed optimizers of a model; see `training.optimizers_of`."""
    return training.found_in(model, reduces)


def remember_step(train_function: Callable[..., object], step: Step) -> None:
    """Attaches the record of a step to its train function, which later `fit` calls may reuse."""
    setattr(train_function, _STEP, step)


def step_of(model: Model) -> Step | None:
    """Returns the record of what a model's training steps do; None before their first `fit`."""
    return getattr(getattr(model, "train_function", None), _STEP, None)


def local_keys(model: Model, step: Step) -> set[int]:
    """Returns the keys of local variables, and of the optimizers' variables for these.

    Args:
        model: of either Keras.
        step: the record of what the model's steps do.
    """
    variables = model.trainable_variables
    local: set[int] = set()
    of_tapes = set().union(*(tape.local.keys() for tape in step.tapes.values()))
    for optimizer in training.optimizers_of(model):
        keys = reducer_of(optimizer).local.keys() if reduces(optimizer) else of_tapes
        own = [variable for variable in variables if key_of(variable) in keys]
        local |= keys | {key_of(slot) for slot in training.slots_of(optimizer, own, variables)}
    for layer in adapted.layers_of(model) if local else ():
        # If all trained weights of a layer are local, so are its statistics.
        if layer.trainable_weights and local.issuperset(map(key_of, layer.trainable_weights)):
            local.update(map(key_of, layer.weights))
    return local


def updates_of(model: Model) -> int:
    """Return how many updates the model's optimizers have made."""
    optimizers = training.optimizers_of(model)
    counters = [getattr(optimizer, "iterations", None) for optimizer in optimizers]
    return sum(int(tf.convert_to_tensor(count)) for count in counters if count is not None)


def process_set_of(model: Model) -> ProcessSet | None:
    """Returns the ranks that train a model together; None if nothing reduces its gradients.

    If several process sets train parts of the model, it returns the first one.
    """
    step = step_of(model)
    tapes = [] if step is None else step.tapes.values()
    known = [*map(reducer_of, reducing_optimizers(model)), *tapes]
    return known[0].options.process_set if known else None


def is_on_first_rank(model: Model) -> bool:
    """Whether this rank is the first rank of the process set that trains a model."""
    return (process_set_of(model) or global_process_set).rank() == 0


def broadcast_state(
    model: Model,
    optimizers: Iterable[Optimizer],
    root_rank: int,
    local: Collection[int] = (),
    process_set: ProcessSet = global_process_set,
    device: str = "",
) -> None:
    """Gives all ranks one rank's weights and optimizers' state, but no random seeds.

    Args:
        model: a built model of either Keras.
        optimizers: the optimizers that train the model. An optimizer that is not built yet is built
            for the same variables as on the root or another rank; if it is built on no rank, only
            the optimizer of `compile` is built, for all variables.
        root_rank: the rank with the state, by its number in the job.
        local: the keys of variables that each rank keeps (see `key_of`).
        process_set: the ranks that call this function.
        device: the device that sends the values; "" for the device of each value.
    """
    variables = keras_compat.model_state(model)
    optimizers = list(optimizers)
    _build_alike(model, optimizers, root_rank, process_set)
    for optimizer in optimizers:
        variables += keras_compat.optimizer_variables(optimizer)
        variables += _shared_by_compression(optimizer, _variables_for(optimizer, model))
        variables += _shared_by_accumulation(optimizer)
    with tf.device(device) if device else nullcontext():
        broadcast_variables(by_number(variables, local), root_rank, process_set)
    adapted.take_values_of_variables(model)


def take_over(
    model: Model, step: Step, place: int, process_set: ProcessSet, kept: Collection[int] = ()
) -> None:
    """Gives all ranks the state of one rank, except local variables; resets the accumulation.

    If this rank fails meanwhile, all take the state of the first rank instead.

    Args:
        model: a built model of either Keras.
        step: the record of what its training steps do.
        place: the index of the rank in the process set.
        process_set: the ranks that train the model.
        kept: the keys of further variables that each rank keeps.
    """
    for optimizer in reducing_optimizers(model):
        accumulator_of(optimizer).begin_anew()
    local = local_keys(model, step) | set(kept)
    while True:
        try:
            root = list(process_set.ranks or range(process.size()))[place]
            broadcast_state(model, training.optimizers_of(model), root, local, process_set)
            break
        except tf.errors.AbortedError as error:
            # All ranks raise this error together. The first remaining rank has a state, too.
            if ROOT_IS_LOST not in str(error) or membership.rehearses:
                raise
            membership.refresh()
            place = 0


def _build_alike(
    model: Model, optimizers: list[Optimizer], root_rank: int, process_set: ProcessSet
) -> None:
    """Builds optimizers as on the root; if the root has not built them, as on another rank."""
    variables = model.trainable_variables
    own = [training.positions_built_for(optimizer, variables) for optimizer in optimizers]
    of_ranks = allgather_object(own, name="built_optimizers", process_set=process_set)
    root = list(process_set.ranks or range(process_set.size())).index(root_rank)
    for number, optimizer in enumerate(optimizers):
        built = [of_rank[number] for of_rank in [of_ranks[root], *of_ranks]]
        positions = next((p for p in built if p is not None), None)
        if positions is None and optimizer is getattr(model, "optimizer", None):
            positions = list(range(len(variables)))
        if positions:
            keras_compat.build_optimizer(optimizer, [variables[i] for i in positions])


def _variables_for(optimizer: Optimizer, model: Model) -> list[Variable]:
    """Lists the variables of a model that an optimizer is built for; none before it is built."""
    positions = training.positions_built_for(optimizer, model.trainable_variables)
    return [model.trainable_variables[i] for i in positions or ()]


def _shared_by_compression(
    optimizer: Optimizer, variables: Iterable[Variable]
) -> list[tf.Variable]:
    compression = reducer_of(optimizer).options.compression if reduces(optimizer) else None
    if compression is None or not has_state(compression):
        return []
    compression.build(variables)
    return compression.shared_state


def _shared_by_accumulation(optimizer: Optimizer) -> list[tf.Variable]:
    accumulates = getattr(optimizer, "gradient_accumulation_steps", None)
    return accumulator_of(optimizer).shared_state if accumulates and reduces(optimizer) else []
