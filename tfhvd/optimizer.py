"""DistributedOptimizer for any optimizer: of Keras 3, tf_keras or tf.compat.v1.train."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfhvd.compat import keras as keras_compat
from tfhvd.compat.object_proxy import Wrapped
from tfhvd.compat.surroundings import require_no_strategy
from tfhvd.compression import Compression
from tfhvd.gradients.options import ReductionOptions
from tfhvd.ops import Average
from tfhvd.runtime.process_sets import global_process_set
from tfhvd.tf1 import optimizer as tf1_optimizer


def DistributedOptimizer(  # noqa: N802 (Horovod's name)
    optimizer: Any,
    name: str | None = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: Any = Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: int | list[list[Any]] | None = None,
    process_set: Any = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Wraps an optimizer, so that every update applies gradients reduced over the ranks.

    For a Keras optimizer this is `tfhvd.keras.DistributedOptimizer`, where the arguments are
    described. A `tf.compat.v1.train.Optimizer` reduces in `compute_gradients`, and so in
    `minimize`; with `backward_passes_per_step`, `compute_gradients` adds up and `apply_gradients`
    updates on every so many calls, and `global_step` counts updates.

    Args:
        optimizer: an optimizer of Keras 3, tf_keras or tf.compat.v1.train. The result shares its
            state.
        name: what the names of the reductions begin with.
        use_locking: taken for Horovod's sake; the given optimizer has its own.
        device_dense: see `tfhvd.keras.DistributedOptimizer`, as for all that follow.
        device_sparse: the same.
        compression: the same.
        sparse_as_dense: the same.
        backward_passes_per_step: the same.
        op: the same.
        gradient_predivide_factor: the same.
        average_aggregated_gradients: the same.
        num_groups: the same.
        groups: the same.
        process_set: the same.
        scale_local_gradients: the same.

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
    )
    return _distribute(optimizer, options.named(f"Distributed{type(optimizer).__name__}"))


def PartialDistributedOptimizer(  # noqa: N802 (Horovod's name)
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: Any = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    groups: int | list[list[Any]] | None = None,
    process_set: Any = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """Wraps an optimizer as `DistributedOptimizer` does, but for the variables of some layers.

    Args:
        optimizer: an optimizer of Keras 3, tf_keras or tf.compat.v1.train.
        name: see `tfhvd.keras.DistributedOptimizer`, as for all that follow.
        device_dense: the same.
        device_sparse: the same.
        compression: the same.
        sparse_as_dense: the same.
        gradient_predivide_factor: the same.
        op: the same.
        backward_passes_per_step: the same.
        average_aggregated_gradients: the same.
        groups: the same.
        process_set: the same.
        local_layers: a Keras layer, or several, whose gradients stay each rank's own; built or not.
        scale_local_gradients: whether those gradients are divided by the number of ranks.

    Returns:
        As `DistributedOptimizer`.

    Raises:
        TypeError: if a local layer is no layer of Keras; else as `DistributedOptimizer`.

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
    )
    return _distribute(optimizer, options.named(f"PartialDistributed{type(optimizer).__name__}"))


def is_distributed(optimizer: Any) -> bool:
    """Returns whether an optimizer reduces the gradients that it applies.

    Args:
        optimizer: anything; a model's `optimizer`, for instance.

    Returns:
        True for what `DistributedOptimizer` and `PartialDistributedOptimizer` return, and for a
        loss scale around it. False for all else: copies that Keras makes by way of a file or a
        configuration (`keras.models.load_model`, `clone_model`, `deserialize`) are plain.

    Raises:
        Nothing, before `init` either.

    Example:
        >>> model = keras.models.load_model("model.keras")
        >>> hvd.is_distributed(model.optimizer)
        False
    """
    candidates = (optimizer, getattr(optimizer, "inner_optimizer", None))
    return any(isinstance(o, Wrapped) and hasattr(o, "register_local_var") for o in candidates)


def _distribute(optimizer: Any, options: ReductionOptions) -> Any:
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
