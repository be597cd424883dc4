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
    `tf.compat.v1.train.Optimizer` reduces in `compute_gradients`, and so in `minimize`. With
    `backward_passes_per_step=N`, `compute_gradients` adds up gradients, every Nth call of
    `apply_gradients` updates, and `global_step` counts updates.

    Args:
        optimizer: an optimizer of Keras 3, tf_keras or tf.compat.v1.train. The result shares its
            state.
        name: the prefix for the names of the reductions, before the variables' paths. By default
            the name of the wrapper and, for an optimizer, of the wrapped class.
        use_locking: ignored; Horovod has this argument, and the given optimizer has its setting.
        device_dense: the device that reduces dense gradients, "" for the device of the gradients.
        device_sparse: the device that reduces IndexedSlices, "" for the device of the slices.
        compression: the compression of gradients for the network, a member of `Compression`. With a
            state, such as `topk`, it reduces each gradient separately, and does not compress
            gradients for which it is unsuitable.
        sparse_as_dense: whether IndexedSlices become dense before the reduction. Otherwise the
            result is IndexedSlices, too, and rows or the whole tensor travel, whichever is smaller.
        backward_passes_per_step: how many calls are accumulated for one update. A new optimizer of
            Keras 3 accumulates them itself, as with `gradient_accumulation_steps`; for all other
            optimizers tfhvd does.
        op: Average, Sum, or, for dense gradients, Min, Max, Product or Adasum.
        gradient_predivide_factor: with Average, the divisor of gradients before the sum; the rest
            of the division by the number of ranks follows after the sum.
        average_aggregated_gradients: whether the gradients of the accumulated calls are averaged;
            otherwise they are added up.
        num_groups: Horovod's old name of `groups`, for a number.
        groups: a number of groups, or lists of variables, in which dense gradients are reduced
            together, all or none; with None tfhvd groups small gradients. IndexedSlices are reduced
            separately.
        process_set: the ranks that take part.
        scale_local_gradients: whether gradients of local variables are multiplied by the rank's
            share of an average: 1 / the number of ranks if all ranks have equal shares.
        quarantine: whether all ranks exclude a rank from a step in which one of its gradients is
            NaN or infinite: they average, or add up, the gradients of the other ranks. The result
            is zeros if no rank is left. No gradient travels before all are computed. Only for
            Average and Sum.

    Returns:
        An optimizer of a subclass of the given optimizer's class.

    Raises:
        TfhvdError: within a strategy of tf.distribute, and on several ranks with a Keras whose
            backend is not TensorFlow.
        TypeError: if `optimizer` is of another kind.
        ValueError: if `optimizer` is wrapped already, or arguments contradict each other.

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
    """Wraps an optimizer as `DistributedOptimizer` does, except for the variables of some layers.

    Args:
        optimizer: an optimizer of Keras 3, tf_keras or tf.compat.v1.train. The result shares its
            state.
        name: the prefix for the names of the reductions, before the variables' paths. By default
            the name of the wrapper and, for an optimizer, of the wrapped class.
        device_dense: the device that reduces dense gradients, "" for the device of the gradients.
        device_sparse: the device that reduces IndexedSlices, "" for the device of the slices.
        compression: the compression of gradients for the network, a member of `Compression`. With a
            state, such as `topk`, it reduces each gradient separately, and does not compress
            gradients for which it is unsuitable.
        sparse_as_dense: whether IndexedSlices become dense before the reduction. Otherwise the
            result is IndexedSlices, too, and rows or the whole tensor travel, whichever is smaller.
        gradient_predivide_factor: with Average, the divisor of gradients before the sum; the rest
            of the division by the number of ranks follows after the sum.
        op: Average, Sum, or, for dense gradients, Min, Max, Product or Adasum.
        backward_passes_per_step: how many calls are accumulated for one update. A new optimizer of
            Keras 3 accumulates them itself, as with `gradient_accumulation_steps`; for all other
            optimizers tfhvd does.
        average_aggregated_gradients: whether the gradients of the accumulated calls are averaged;
            otherwise they are added up.
        groups: a number of groups, or lists of variables, in which dense gradients are reduced
            together, all or none; with None tfhvd groups small gradients. IndexedSlices are reduced
            separately.
        process_set: the ranks that take part.
        local_layers: a Keras layer, or several, built or not, whose gradients are not reduced; None
            for no layer.
        scale_local_gradients: whether gradients of local variables are multiplied by the rank's
            share of an average: 1 / the number of ranks if all ranks have equal shares.
        quarantine: whether all ranks exclude a rank from a step in which one of its gradients is
            NaN or infinite: they average, or add up, the gradients of the other ranks. The result
            is zeros if no rank is left. No gradient travels before all are computed. Only for
            Average and Sum.

    Returns:
        An optimizer of a subclass of the given optimizer's class. Its `register_local_var(var)`
        excludes one more variable from the reduction.

    Raises:
        TfhvdError: within a strategy of tf.distribute, and on several ranks with a Keras whose
            backend is not TensorFlow.
        TypeError: if `optimizer` is of another kind, or a local layer is not a layer of Keras.
        ValueError: if `optimizer` is wrapped already, or arguments contradict each other.

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

    It works before `init`, too, and raises nothing.

    Args:
        optimizer: any object, such as a model's `optimizer`.

    Returns:
        True for the results of `DistributedOptimizer` and `PartialDistributedOptimizer`, and for a
        loss scale around such a result. False for any other object: copies that Keras makes from a
        file or a configuration (`keras.models.load_model`, `clone_model`, `deserialize`) are plain.

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
    from tfhvd.keras.optimizer import distribute  # here, because Keras takes seconds to import

    return distribute(optimizer, options)
