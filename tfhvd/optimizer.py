"""DistributedOptimizer for any optimizer: of Keras 3, tf_keras or tf.compat.v1.train."""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf

from tfhvd import _compat
from tfhvd.compression import Compression
from tfhvd.gradients import GradientReducer
from tfhvd.ops import Average
from tfhvd.process_sets import global_process_set


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
    `minimize`.

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
        TypeError: if `optimizer` is none of these.
        ValueError: if it is wrapped already, or arguments contradict each other.
        NotImplementedError: for `backward_passes_per_step` above 1 with anything but Keras 3.

    Example:
        >>> optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.01 * hvd.size()))
    """
    del use_locking
    arguments = {
        "device_dense": device_dense,
        "device_sparse": device_sparse,
        "compression": compression,
        "sparse_as_dense": sparse_as_dense,
        "op": op,
        "gradient_predivide_factor": gradient_predivide_factor,
        "process_set": process_set,
    }
    if isinstance(optimizer, tf.compat.v1.train.Optimizer):
        if backward_passes_per_step != 1:
            raise NotImplementedError(
                f"Received: backward_passes_per_step={backward_passes_per_step} with a "
                "tf.compat.v1.train.Optimizer. Expected: 1, or an optimizer of Keras 3."
            )
        name = name or f"Distributed{type(optimizer).__name__}"
        return _wrap(
            optimizer, GradientReducer(name=name, groups=groups or num_groups or None, **arguments)
        )
    if _compat.keras_package(optimizer) is None:
        raise TypeError(
            f"Received: optimizer={optimizer!r}. Expected: an optimizer of keras, tf_keras or "
            "tf.compat.v1.train."
        )
    from tfhvd.keras import optimizer as keras_optimizer  # Keras takes seconds to import.

    return keras_optimizer.DistributedOptimizer(
        optimizer,
        name=name,
        backward_passes_per_step=backward_passes_per_step,
        average_aggregated_gradients=average_aggregated_gradients,
        num_groups=num_groups,
        groups=groups,
        scale_local_gradients=scale_local_gradients,
        **arguments,
    )


class _Reduces:
    """The part of a wrapped tf.compat.v1.train.Optimizer that differs from the plain one."""

    __slots__ = ()
    _tfhvd_reducer: GradientReducer

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        """Computes the gradients on this rank and reduces them: see the plain optimizer."""
        gradients_and_variables = super().compute_gradients(*args, **kwargs)
        variables = [v for _, v in gradients_and_variables]
        return list(
            zip(self._tfhvd_reducer([g for g, _ in gradients_and_variables], variables), variables)
        )


def _wrap(optimizer: Any, reducer: GradientReducer) -> Any:
    if isinstance(optimizer, _Reduces):
        raise ValueError(
            "Received: an optimizer that is distributed already. Expected: a plain one."
        )
    wrapped: Any = object.__new__(_subclass_of(type(optimizer)))
    object.__setattr__(wrapped, "__dict__", vars(optimizer))  # one state, seen through two objects
    object.__setattr__(wrapped, "_tfhvd_reducer", reducer)
    return wrapped


@functools.cache
def _subclass_of(cls: type) -> type:
    body = {"__slots__": ("_tfhvd_reducer",), "__module__": cls.__module__, "__doc__": cls.__doc__}
    return type(f"Distributed{cls.__name__}", (_Reduces, cls), body)
