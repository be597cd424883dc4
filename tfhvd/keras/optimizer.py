"""DistributedOptimizer for Keras 3 and tf_keras: the user's optimizer with reduced gradients.

A wrapped optimizer is a second object that shares the state of the user's optimizer (see
`tfhvd.compat.object_proxy`). Only updates through the wrapped optimizer reduce gradients.
`tfhvd.keras.wrap.hooks` has the methods that differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from tfhvd.compat import keras as keras_compat
from tfhvd.compat import private
from tfhvd.compat.object_proxy import wrap
from tfhvd.compat.surroundings import require_no_strategy, require_tensorflow
from tfhvd.compat.training import surround_loss_scales
from tfhvd.compression import AnyCompression, Compression
from tfhvd.gradients import loss_scale
from tfhvd.gradients.accumulator import GradientAccumulator
from tfhvd.gradients.options import ReductionOptions
from tfhvd.gradients.reducer import GradientReducer
from tfhvd.job.process import is_initialized, size
from tfhvd.keras.fit.patch import keep_in_step
from tfhvd.keras.wrap.hooks import (
    BeforeClipping,
    Delegates,
    Reduces,
    ReducesBeforeApply,
    ReducesBeforeClipping,
    ReducesOnAggregation,
    ReducesOnLegacyAggregation,
    inner_of,
    reducer_of,
    reduces,
)
from tfhvd.ops import Average, ReduceOp
from tfhvd.ops.batch_moments import synchronize_keras
from tfhvd.runtime.process_sets import ProcessSet, global_process_set

if TYPE_CHECKING:
    import tensorflow as tf

    from tfhvd.compat.types import Optimizer, Variable

_Optimizer = TypeVar("_Optimizer")  # of either Keras


def DistributedOptimizer(  # noqa: N802 (Horovod's name)
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
    num_groups: int = 0,
    groups: int | Sequence[Sequence[Variable]] | None = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
    quarantine: bool = False,
) -> _Optimizer:
    """Wraps a Keras optimizer, so that every update applies gradients reduced over the ranks.

    Gradients are reduced once for each real update: with `gradient_accumulation_steps` once for
    each accumulated gradient. They are reduced before clipping. A loss scale skips an update on all
    ranks or on no rank. The same gradients must be None on every rank. Models save the optimizer as
    its plain class.

    In `fit`, ranks may have unequal data: an Average counts every sample once, and all ranks stop
    together. See `tfhvd.keras.fit.patch`.

    Args:
        optimizer: an optimizer of Keras 3, tf_keras or tf_keras' legacy ones, new or built. The
            result shares its state.
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
        An optimizer of a subclass of the given optimizer's class. Its `register_local_var(var)`
        excludes a variable from the reduction.

    Raises:
        TfhvdError: within a strategy of tf.distribute, and on several ranks with a Keras whose
            backend is not TensorFlow.
        TypeError: if `optimizer` is not an optimizer of Keras 3 or tf_keras.
        ValueError: if it is wrapped already, or arguments contradict each other.

    Example:
        >>> optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(1e-3 * hvd.size()))
        >>> model.compile(optimizer, loss="sparse_categorical_crossentropy")
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
        num_groups=num_groups,
        groups=groups,
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
        quarantine=quarantine,
    )
    return distribute(optimizer, options.named(f"Distributed{type(optimizer).__name__}"))


def distribute(optimizer: _Optimizer, options: ReductionOptions) -> _Optimizer:
    """Wraps an optimizer of Keras: see `DistributedOptimizer`.

    Args:
        optimizer: of Keras 3, tf_keras or tf_keras' legacy ones.
        options: with a name.

    Raises:
        TfhvdError: within a strategy of tf.distribute, and on several ranks with a Keras whose
            backend is not TensorFlow.
        TypeError: if `optimizer` is not an optimizer of Keras 3 or tf_keras.
        ValueError: if it is wrapped already.
    """
    package = keras_compat.keras_package(optimizer)
    if package is None or not (
        hasattr(optimizer, "apply_gradients") and hasattr(optimizer, "get_config")
    ):
        raise TypeError(
            f"Received: optimizer={optimizer!r}. Expected: an optimizer of keras or tf_keras."
        )
    if reduces(optimizer):
        raise ValueError(
            f"This {type(optimizer).__name__} is already wrapped for tfhvd; pass the original "
            "object."
        )
    require_no_strategy()
    require_tensorflow(optimizer, size() if is_initialized() else 1)
    wrapped = _wrap(optimizer, package, options)
    synchronize_keras()
    keep_in_step(package)
    if package == keras_compat.KERAS_3:
        keras_compat.agree_on_finite(_agree)
    else:
        surround_loss_scales(loss_scale.looks_itself)
    return wrapped


def _wrap(optimizer: Optimizer, package: str, options: ReductionOptions) -> Optimizer:
    """Returns the wrapped optimizer, which shares the given optimizer's state."""
    passes = options.backward_passes_per_step
    inner = inner_of(optimizer)
    if inner is not None:
        attribute = "inner_optimizer" if "inner_optimizer" in vars(optimizer) else "_optimizer"
        wrapped = _wrap(inner, package, options)
        # This bypasses the optimizer's __setattr__, because the tracked state does not change.
        vars(optimizer)[attribute] = wrapped
        return wrap(optimizer, Delegates, wrapped._tfhvd, disguised=True)
    if package != keras_compat.KERAS_3:
        new = hasattr(optimizer, "aggregate_gradients")
        hook: type[Reduces] = ReducesOnAggregation if new else ReducesOnLegacyAggregation
        private.require_hook(optimizer, "aggregate_gradients" if new else "_aggregate_gradients")
        own = GradientAccumulator.of(options)
    elif _accumulates_itself(optimizer, passes):
        private.require_hook(optimizer, "_clip_gradients")
        hook = ReducesBeforeClipping
        # Keras averages the accumulated gradients.
        scale = 1.0 if options.average_aggregated_gradients else float(passes)
        own = BeforeClipping(GradientReducer(options, scale))
        if passes > 1:
            optimizer.gradient_accumulation_steps = passes
    else:
        hook = ReducesBeforeApply
        own = GradientAccumulator.of(options)
    return wrap(optimizer, hook, own, disguised=True)


def _accumulates_itself(optimizer: Optimizer, passes: int) -> bool:
    """Whether an optimizer of Keras 3 accumulates gradients itself, or can be made to."""
    if keras_compat.defined_in(optimizer, "apply") != "BaseOptimizer":
        return False
    steps = optimizer.gradient_accumulation_steps
    if passes > 1 and steps not in (None, passes):
        raise ValueError(
            f"backward_passes_per_step={passes} and the optimizer's own "
            f"gradient_accumulation_steps={steps} contradict each other; pass one of them."
        )
    return passes == 1 or steps == passes or not optimizer.built


def _agree(optimizer: Optimizer, finite: tf.Tensor) -> tf.Tensor:
    """Makes a loss scale skip an update if the gradients of any rank are not finite."""
    inner = inner_of(optimizer)
    if not isinstance(inner, Reduces):
        return finite
    return reducer_of(inner).all_ranks(finite)
