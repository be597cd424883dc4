"""DistributedOptimizer for any optimizer: of Keras 3, tf_keras or tf.compat.v1.train."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

import tensorflow as tf

from tfhvd.compat import keras as keras_compat
from tfhvd.compat.object_proxy import Wrapped
from tfhvd.compat.surroundings import require_no_strategy
from tfhvd.compression import AnyCompression, Compression
from tfhvd.gradients.options import ReductionOptions
from tfhvd.ops import Average, ReduceOp
from tfhvd.runtime.process_sets import ProcessSet, global_process_set
from tfhvd.tf1 import optimizer as tf1_optimizer

if TYPE_CHECKING:
    from tfhvd.compat.types import Layer, Variable

_Optimizer = TypeVar("_Optimizer")  # of either Keras, or of tf.compat.v1.train


def DistributedOptimizer(  # noqa: N802 (Horovod's name)
    optimizer: _Optimizer,
    name: str | None = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: AnyCompression = Compression.none,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: ReduceOp = Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[Variable]] | None = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
    quarantine: bool = False,
) -> _Optimizer:
    """Wraps an optimizer, so that every update applies gradients reduced over the ranks.

    For a Keras optimizer this is `tfhvd.keras.DistributedOptimizer`. A
    `tf.compat.v1.train.Optimizer` reduces in `compute_gradients`, and so in `minimize`; with
    `backward_passes_per_step`, `compute_gradients` adds up and `apply_gradients` updates on every
    so many calls, and `global_step` counts updates.

    Args:
        optimizer: an optimizer of Keras 3, tf_keras or tf.compat.v1.train. The result shares its
            state.
        name: what the names of the reductions begin with; the variables' paths follow. By default
            what wraps and, of an optimizer, the class that is wrapped.
        use_locking: taken for Horovod's sake; the given optimizer has its own.
        device_dense: the device on which dense gradients are reduced, "" for their own.
        device_sparse: the device on which IndexedSlices are reduced, "" for their own.
        compression: how gradients travel: a member of `Compression`. One with a state, such as
            `topk`, reduces each gradient on its own, and leaves alone those that it does not suit.
        sparse_as_dense: whether IndexedSlices are made dense before they are reduced. Otherwise
            they stay slices, and travel as rows or as a whole tensor, as is less to send.
        backward_passes_per_step: how many calls are accumulated to one update. A new optimizer of
            Keras 3 does it itself, as its `gradient_accumulation_steps`; for all others tfhvd does.
        op: Average, Sum, or, for dense gradients, Min, Max, Product or Adasum.
        gradient_predivide_factor: with Average, what gradients are divided by before the sum; the
            rest of the division by the number of ranks follows the sum.
        average_aggregated_gradients: whether those calls' gradients are averaged; otherwise they
            are added up.
        num_groups: Horovod's old name for a number given as `groups`.
        groups: into how many groups, or which lists of variables, dense gradients are put to be
            reduced together, all or none; None to have small ones put together. IndexedSlices are
            reduced on their own.
        process_set: the ranks that take part.
        scale_local_gradients: whether gradients of local variables are multiplied by the rank's
            share of an average: 1 / the number of ranks if all ranks count alike.
        quarantine: whether a rank of whose gradients in a step one is NaN or infinite has no part
            in that step, on all ranks alike: an average is that of the other ranks, a sum lacks the
            rank. Zeros if no rank is left. No gradient travels before all are computed. With
            Average and Sum.

    Returns:
        An optimizer of a subclass of the given optimizer's class.

    Raises:
        TfhvdError: within a strategy of tf.distribute, and on several ranks with a Keras whose
            backend is not TensorFlow.
        TypeError: if `optimizer` is none of these.
        ValueError: if it is wrapped already, or arguments contradict each other.

    Example:
        >>> optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.01 * hvd.size()))
    """
    del use_locking
    options = ReductionOptions(
        name=name,
        device_dense=device_dense,
        device_sparse=device_sparse,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        backward_passes_per_step=backward_passes_per_step,
        op=op,
        gradient_predivide_factor=gradient_predivide_factor,
        average_aggregated_gradients=average_aggregated_gradients,
        num_groups=num_groups,
        groups=groups,
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
        quarantine=quarantine,
    )
    return _distribute(optimizer, options.named(f"Distributed{type(optimizer).__name__}"))


def PartialDistributedOptimizer(  # noqa: N802 (Horovod's name)
    optimizer: _Optimizer,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: AnyCompression = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: ReduceOp = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    groups: int | Sequence[Sequence[Variable]] | None = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Layer | Iterable[Layer] | None = None,
    scale_local_gradients: bool = True,
    quarantine: bool = False,
) -> _Optimizer:
    """Wraps an optimizer as `DistributedOptimizer` does, but for the variables of some layers.

    Args:
        optimizer: an optimizer of Keras 3, tf_keras or tf.compat.v1.train. The result shares its
            state.
        name: what the names of the reductions begin with; the variables' paths follow. By default
            what wraps and, of an optimizer, the class that is wrapped.
        device_dense: the device on which dense gradients are reduced, "" for their own.
        device_sparse: the device on which IndexedSlices are reduced, "" for their own.
        compression: how gradients travel: a member of `Compression`. One with a state, such as
            `topk`, reduces each gradient on its own, and leaves alone those that it does not suit.
        sparse_as_dense: whether IndexedSlices are made dense before they are reduced. Otherwise
            they stay slices, and travel as rows or as a whole tensor, as is less to send.
        gradient_predivide_factor: with Average, what gradients are divided by before the sum; the
            rest of the division by the number of ranks follows the sum.
        op: Average, Sum, or, for dense gradients, Min, Max, Product or Adasum.
        backward_passes_per_step: how many calls are accumulated to one update. A new optimizer of
            Keras 3 does it itself, as its `gradient_accumulation_steps`; for all others tfhvd does.
        average_aggregated_gradients: whether those calls' gradients are averaged; otherwise they
            are added up.
        groups: into how many groups, or which lists of variables, dense gradients are put to be
            reduced together, all or none; None to have small ones put together. IndexedSlices are
            reduced on their own.
        process_set: the ranks that take part.
        local_layers: a Keras layer, or several, built or not, whose gradients stay each rank's own;
            None for no layer.
        scale_local_gradients: whether gradients of local variables are multiplied by the rank's
            share of an average: 1 / the number of ranks if all ranks count alike.
        quarantine: whether a rank of whose gradients in a step one is NaN or infinite has no part
            in that step, on all ranks alike: an average is that of the other ranks, a sum lacks the
            rank. Zeros if no rank is left. No gradient travels before all are computed. With
            Average and Sum.

    Returns:
        An optimizer of a subclass of the given optimizer's class. Its `register_local_var(var)`
        excepts a further variable from the reduction.

    Raises:
        TfhvdError: within a strategy of tf.distribute, and on several ranks with a Keras whose
            backend is not TensorFlow.
        TypeError: if `optimizer` is none of these, or a local layer is no layer of Keras.
        ValueError: if it is wrapped already, or arguments contradict each other.

    Example:
        >>> optimizer = hvd.PartialDistributedOptimizer(
        ...     tf.keras.optimizers.SGD(0.1), local_layers=model.layers[0]
        ... )
    """
    options = ReductionOptions(
        name=name,
        device_dense=device_dense,
        device_sparse=device_sparse,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        gradient_predivide_factor=gradient_predivide_factor,
        op=op,
        backward_passes_per_step=backward_passes_per_step,
        average_aggregated_gradients=average_aggregated_gradients,
        groups=groups,
        process_set=process_set,
        local_layers=local_layers,
        scale_local_gradients=scale_local_gradients,
        quarantine=quarantine,
    )
    return _distribute(optimizer, options.named(f"PartialDistributed{type(optimizer).__name__}"))


def is_distributed(optimizer: object) -> bool:
    """Returns whether an optimizer reduces the gradients that it applies.

    It can be called before `init`, too, and raises nothing.

    Args:
        optimizer: anything; a model's `optimizer`, for instance.

    Returns:
        True for what `DistributedOptimizer` and `PartialDistributedOptimizer` return, and for a
        loss scale around it. False for all else: copies that Keras makes by way of a file or a
        configuration (`keras.models.load_model`, `clone_model`, `deserialize`) are plain.

    Example:
        >>> model = keras.models.load_model("model.keras")
        >>> hvd.is_distributed(model.optimizer)
        False
    """
    candidates = (optimizer, getattr(optimizer, "inner_optimizer", None))
    return any(isinstance(o, Wrapped) and hasattr(o, "register_local_var") for o in candidates)


def _distribute(optimizer: _Optimizer, options: ReductionOptions) -> _Optimizer:
    require_no_strategy()
    if isinstance(optimizer, tf.compat.v1.train.Optimizer):
        return tf1_optimizer.distribute(optimizer, options)
    if keras_compat.keras_package(optimizer) is None:
        raise TypeError(
            f"Received: optimizer={optimizer!r}. Expected: an optimizer of keras, tf_keras or "
            "tf.compat.v1.train."
        )
    from tfhvd.keras.optimizer import distribute  # Keras takes seconds to import.

    return distribute(optimizer, options)
