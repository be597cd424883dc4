"""DistributedOptimizer for Keras 3 and tf_keras: the user's optimizer, whose gradients are reduced.

A wrapped optimizer is a second object over the state of the user's own (see `tfhvd.wrapping`): only
updates through the wrapped one are reduced. Where its hook sits differs with who applies the
gradients:

| optimizer | gradients are reduced in | accumulated by |
|---|---|---|
| Keras 3 | `_clip_gradients`: once per update, after accumulation, before clipping | Keras |
| Keras 3, built before or with an `apply` of its own (MultiOptimizer) | `apply` | tfhvd |
| tf_keras | `aggregate_gradients`: before clipping, before a loss scale looks for inf | tfhvd |
| tf_keras legacy | `_aggregate_gradients`, likewise | tfhvd |
| LossScaleOptimizer of either | the inner optimizer | the inner optimizer |
"""

from __future__ import annotations

import functools
import logging
from typing import Any

from tfhvd import _compat
from tfhvd.accumulate import GradientAccumulator
from tfhvd.compression import Compression
from tfhvd.gradients import GradientReducer
from tfhvd.local_sources import LocalSources
from tfhvd.moments import synchronize_keras
from tfhvd.ops import Average
from tfhvd.process import is_initialized, rank
from tfhvd.process_sets import global_process_set
from tfhvd.wrapping import Wrapped, wrap

_logger = logging.getLogger("tfhvd")


def DistributedOptimizer(  # noqa: N802 (Horovod's name)
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
    num_groups: int = 0,
    groups: int | list[list[Any]] | None = None,
    process_set: Any = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Wraps a Keras optimizer, so that every update applies gradients reduced over the ranks.

    Gradients are reduced once per real update: with `gradient_accumulation_steps` once per
    accumulated gradient; before clipping; and so that a loss scale skips an update on all ranks or
    on none. The gradients that are None must be the same on every rank. Models save the optimizer
    as its plain class.

    Args:
        optimizer: an optimizer of Keras 3, tf_keras or tf_keras' legacy ones, new or built. The
            result shares its state.
        name: what the names of the reductions begin with; "Distributed" and the class by default.
        device_dense: the device on which dense gradients are reduced, "" for where they are.
        device_sparse: the same for IndexedSlices.
        compression: how gradients travel: `Compression.none`, `.fp16` or `.bf16`.
        sparse_as_dense: whether IndexedSlices are made dense before they are reduced.
        gradient_predivide_factor: with Average, what gradients are divided by before the sum; the
            rest of the division follows it.
        op: Average, Sum, Min, Max or Product.
        backward_passes_per_step: how many calls are accumulated to one update. A new optimizer of
            Keras 3 does it itself, as its `gradient_accumulation_steps`; for all others tfhvd does.
        average_aggregated_gradients: whether those calls' gradients are averaged; otherwise summed.
        num_groups: Horovod's old name for a number given as `groups`.
        groups: into how many groups, or which lists of variables, gradients are put to be reduced
            together.
        process_set: the ranks that take part.
        scale_local_gradients: whether gradients of variables that `register_local_var` names are
            divided by the number of ranks, as they would be in an average.

    Returns:
        An optimizer of a subclass of the given optimizer's class. Its `register_local_var(var)`
        excepts a variable from the reduction.

    Raises:
        TypeError: if `optimizer` is not an optimizer of Keras 3 or tf_keras.
        ValueError: if it is wrapped already, or arguments contradict each other.

    Example:
        >>> optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(1e-3 * hvd.size()))
        >>> model.compile(optimizer, loss="sparse_categorical_crossentropy")
    """
    return _distribute(
        optimizer,
        backward_passes_per_step,
        average_aggregated_gradients,
        name=name or f"Distributed{type(optimizer).__name__}",
        op=op,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        gradient_predivide_factor=gradient_predivide_factor,
        groups=groups or num_groups or None,
        scale_local_gradients=scale_local_gradients,
        process_set=process_set,
        device_dense=device_dense,
        device_sparse=device_sparse,
    )


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
    """Wraps a Keras optimizer as `DistributedOptimizer` does, but for the variables of some layers.

    Args:
        optimizer: see `DistributedOptimizer`, as for all that follow.
        name: the same.
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
        ...     keras.optimizers.Adam(1e-3), local_layers=[embedding_of_this_rank]
        ... )
    """
    return _distribute(
        optimizer,
        backward_passes_per_step,
        average_aggregated_gradients,
        name=name or f"PartialDistributed{type(optimizer).__name__}",
        op=op,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        gradient_predivide_factor=gradient_predivide_factor,
        groups=groups,
        local=LocalSources(local_layers),
        scale_local_gradients=scale_local_gradients,
        process_set=process_set,
        device_dense=device_dense,
        device_sparse=device_sparse,
    )


def _distribute(optimizer: Any, passes: int, average: bool, **reduction: Any) -> Any:
    package = _compat.keras_package(optimizer)
    if package is None or not (
        hasattr(optimizer, "apply_gradients") and hasattr(optimizer, "get_config")
    ):
        raise TypeError(
            f"Received: optimizer={optimizer!r}. Expected: an optimizer of keras or tf_keras."
        )
    if reduces(optimizer):
        raise ValueError(
            f"Received: {type(optimizer).__name__}, which is distributed already. Expected: a "
            "plain one."
        )
    wrapped = _wrap(optimizer, package, passes, average, reduction)
    synchronize_keras()
    _compat.never_compile_training(package, reduces, _say_once)
    if package == _compat.KERAS_3:
        _compat.agree_on_finite(_agree)
    return wrapped


def reduces(optimizer: Any) -> bool:
    """Whether an optimizer, or the one in its loss scale, is made by `DistributedOptimizer`."""
    return isinstance(optimizer, _Reduces) or isinstance(_inner(optimizer), _Reduces)


class _Reduces(Wrapped):
    """What all wrapped optimizers are; the classes below add the hook."""

    __slots__ = ()
    _tfhvd: GradientAccumulator

    def register_local_var(self, var: Any) -> None:
        """Excepts a variable from the reduction: its gradient stays this rank's own.

        Args:
            var: a variable that the optimizer updates.
        """
        _reducer_of(self).local.add(var)

    def _added(self, grads_and_vars: Any) -> list[tuple[Any, Any]]:
        grads_and_vars = list(grads_and_vars)
        variables = [v for _, v in grads_and_vars]
        return list(zip(self._tfhvd.add([g for g, _ in grads_and_vars], variables), variables))


class _BeforeClipping(GradientAccumulator):
    """Of optimizers that accumulate by themselves: knows whose gradients are to come."""

    awaited: tuple[Any, ...] = ()


class _ReducesBeforeClipping(_Reduces):
    """Keras 3: `apply` notes the variables, `_clip_gradients` reduces their gradients."""

    __slots__ = ()
    _tfhvd: _BeforeClipping

    def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
        """Updates the variables with reduced gradients; as in the plain optimizer otherwise."""
        grads = list(grads)
        if trainable_variables is not None:
            trainable_variables = list(trainable_variables)
        self._tfhvd.awaited = tuple(
            variable
            for gradient, variable in zip(grads, trainable_variables or self._trainable_variables)
            if gradient is not None and not getattr(variable, "overwrite_with_gradient", False)
        )
        result = super().apply(grads, trainable_variables)
        if self._tfhvd.awaited and not self.gradient_accumulation_steps:
            raise RuntimeError(
                f"{type(self).__name__} was updated without its gradients being reduced: this "
                "version of Keras does not call _clip_gradients in apply. Use "
                "DistributedGradientTape in a custom training loop instead, and please report this."
            )
        return result

    def _clip_gradients(self, grads: Any) -> Any:
        awaited, self._tfhvd.awaited = self._tfhvd.awaited, ()
        return super()._clip_gradients(self._tfhvd.add(grads, awaited))


class _ReducesBeforeApply(_Reduces):
    """Keras 3, where its own accumulation is not to be had: reduces before `apply`."""

    __slots__ = ()

    def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
        """Updates the variables with reduced gradients; as in the plain optimizer otherwise."""
        given = None if trainable_variables is None else list(trainable_variables)
        variables = self._trainable_variables if given is None else given
        # Before the update, which may lie in a branch: there no variables can be made.
        _compat.build_optimizer(self, variables)
        gradients = self._tfhvd.add(grads, variables)
        update = super().apply
        return self._tfhvd.apply(gradients, lambda: update(gradients, given))


class _ReducesOnAggregation(_Reduces):
    """tf_keras."""

    __slots__ = ()

    def aggregate_gradients(self, grads_and_vars: Any) -> Any:
        """Reduces the gradients over the ranks."""
        return super().aggregate_gradients(self._added(grads_and_vars))

    def apply_gradients(
        self,
        grads_and_vars: Any,
        name: str | None = None,
        skip_gradients_aggregation: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Updates the variables with reduced gradients; as in the plain optimizer otherwise."""
        update = super().apply_gradients
        if not self._tfhvd.accumulates:
            return update(grads_and_vars, name, skip_gradients_aggregation, **kwargs)
        if not skip_gradients_aggregation and kwargs.pop("experimental_aggregate_gradients", True):
            grads_and_vars = self.aggregate_gradients(grads_and_vars)
        pairs = list(grads_and_vars)
        return self._tfhvd.apply(
            [gradient for gradient, _ in pairs],
            lambda: update(pairs, name, skip_gradients_aggregation=True),
        )


class _ReducesOnLegacyAggregation(_Reduces):
    """tf_keras.optimizers.legacy."""

    __slots__ = ()

    def _aggregate_gradients(self, grads_and_vars: Any) -> Any:
        return super()._aggregate_gradients(self._added(grads_and_vars))

    def apply_gradients(
        self,
        grads_and_vars: Any,
        name: str | None = None,
        experimental_aggregate_gradients: bool = True,
    ) -> Any:
        """Updates the variables with reduced gradients; as in the plain optimizer otherwise."""
        update = super().apply_gradients
        if not self._tfhvd.accumulates:
            return update(grads_and_vars, name, experimental_aggregate_gradients)
        pairs = [(gradient, v) for gradient, v in grads_and_vars if gradient is not None]
        if experimental_aggregate_gradients:
            pairs = self._aggregate_gradients(self._transform_unaggregated_gradients(pairs))
        pairs = list(pairs)
        return self._tfhvd.apply(
            [gradient for gradient, _ in pairs],
            lambda: update(pairs, name, experimental_aggregate_gradients=False),
        )


class _Delegates(_Reduces):
    """A loss scale: its inner optimizer reduces."""

    __slots__ = ()


def _wrap(
    optimizer: Any, package: str, passes: int, average: bool, reduction: dict[str, Any]
) -> Any:
    """Makes the second object over the optimizer's state."""
    inner = _inner(optimizer)
    if inner is not None:
        attribute = "inner_optimizer" if "inner_optimizer" in vars(optimizer) else "_optimizer"
        wrapped = _wrap(inner, package, passes, average, reduction)
        # Past the optimizer's own __setattr__: to what it tracks, the state is the same.
        vars(optimizer)[attribute] = wrapped
        return wrap(optimizer, _Delegates, wrapped._tfhvd, disguised=True)
    if package != _compat.KERAS_3:
        new = hasattr(optimizer, "aggregate_gradients")
        hook = _ReducesOnAggregation if new else _ReducesOnLegacyAggregation
        own = GradientAccumulator(GradientReducer(**reduction), passes, average)
    elif _accumulates_itself(optimizer, passes):
        hook = _ReducesBeforeClipping
        # Keras averages what it accumulates.
        scale = 1.0 if average else float(passes)
        own = _BeforeClipping(GradientReducer(scale=scale, **reduction))
        if passes > 1:
            optimizer.gradient_accumulation_steps = passes
    else:
        hook = _ReducesBeforeApply
        own = GradientAccumulator(GradientReducer(**reduction), passes, average)
    return wrap(optimizer, hook, own, disguised=True)


def _accumulates_itself(optimizer: Any, passes: int) -> bool:
    """Whether an optimizer of Keras 3 has, or can be given, the accumulation of its class."""
    if passes < 1:
        raise ValueError(f"Received: backward_passes_per_step={passes}. Expected: 1 or more.")
    if _compat.defined_in(optimizer, "apply") != "BaseOptimizer":
        return False
    steps = optimizer.gradient_accumulation_steps
    if passes > 1 and steps not in (None, passes):
        raise ValueError(
            f"Received: backward_passes_per_step={passes} with an optimizer that has "
            f"gradient_accumulation_steps={steps}. Expected: one of them, or both the same."
        )
    return passes == 1 or steps == passes or not optimizer.built


def _reducer_of(optimizer: Any) -> GradientReducer:
    return optimizer._tfhvd.reduce


def _inner(optimizer: Any) -> Any:
    return getattr(optimizer, "inner_optimizer", None)


def _agree(optimizer: Any, finite: Any) -> Any:
    """Makes a loss scale skip an update where any rank's gradients are not finite."""
    inner = _inner(optimizer)
    if not isinstance(inner, _Reduces):
        return finite
    return _reducer_of(inner).all_ranks(finite)


@functools.cache
def _say_once(text: str) -> None:
    if not is_initialized() or rank() == 0:
        _logger.warning(text)
