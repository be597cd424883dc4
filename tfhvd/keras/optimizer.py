"""DistributedOptimizer for Keras 3 and tf_keras: the user's optimizer, whose gradients are reduced.

A wrapped optimizer is a second object over the state (`__dict__`) of the user's own, of a class
that inherits from the user's class and adds one hook. So it is built if that is built, is
configured as that is, and whatever is set on the one shows on the other; only updates through the
wrapped one are reduced.

Where the hook sits differs with who applies the gradients:

| optimizer | hook |
|---|---|
| Keras 3 | `_clip_gradients`: once per update, after accumulation, before clipping |
| Keras 3 with an `apply` of its own (MultiOptimizer) | `apply` |
| tf_keras | `aggregate_gradients`: before clipping, and before a loss scale looks for inf |
| tf_keras legacy | `_aggregate_gradients`, likewise |
| LossScaleOptimizer of either | the inner optimizer's |
"""

from __future__ import annotations

import functools
import logging
import types
from typing import Any

from tfhvd import _compat
from tfhvd.compression import Compression
from tfhvd.gradients import GradientReducer
from tfhvd.ops import Average
from tfhvd.process import is_initialized, rank
from tfhvd.process_sets import global_process_set

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
        backward_passes_per_step: how many calls are accumulated to one update. Keras 3 only, as its
            `gradient_accumulation_steps`, and before the optimizer is built.
        average_aggregated_gradients: whether those calls' gradients are averaged; otherwise summed.
        num_groups: Horovod's old name for a number given as `groups`.
        groups: into how many groups, or which lists of variables, gradients are put to be reduced
            together.
        process_set: the ranks that take part.
        scale_local_gradients: taken for Horovod's sake; there are no local variables yet.

    Returns:
        An optimizer of a subclass of the given optimizer's class.

    Raises:
        TypeError: if `optimizer` is not an optimizer of Keras 3 or tf_keras.
        ValueError: if it is wrapped already, or arguments contradict each other.
        NotImplementedError: for `backward_passes_per_step` above 1 with tf_keras.

    Example:
        >>> optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(1e-3 * hvd.size()))
        >>> model.compile(optimizer, loss="sparse_categorical_crossentropy")
    """
    del scale_local_gradients
    package = _compat.keras_package(optimizer)
    if package is None or not (
        hasattr(optimizer, "apply_gradients") and hasattr(optimizer, "get_config")
    ):
        raise TypeError(
            f"Received: optimizer={optimizer!r}. Expected: an optimizer of keras or tf_keras."
        )
    if reduces(optimizer):
        raise ValueError(
            "Received: an optimizer that is distributed already. Expected: a plain one."
        )
    scale = _accumulate(optimizer, package, backward_passes_per_step, average_aggregated_gradients)
    reducer = GradientReducer(
        name=name or f"Distributed{type(optimizer).__name__}",
        op=op,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        gradient_predivide_factor=gradient_predivide_factor,
        groups=groups or num_groups or None,
        scale=scale,
        process_set=process_set,
        device_dense=device_dense,
        device_sparse=device_sparse,
    )
    _compat.never_compile_training(package, reduces, _say_once)
    if package == _compat.KERAS_3:
        _compat.agree_on_finite(_agree)
    return _wrap(optimizer, package, reducer)


def reduces(optimizer: Any) -> bool:
    """Whether an optimizer, or the one in its loss scale, is made by `DistributedOptimizer`."""
    return isinstance(optimizer, _Reduces) or isinstance(_inner(optimizer), _Reduces)


class _Reduces:
    """What all wrapped optimizers are; the classes below add the hook."""

    __slots__ = ()
    _tfhvd_reducer: GradientReducer

    def _reduced(self, grads_and_vars: Any) -> list[tuple[Any, Any]]:
        grads_and_vars = list(grads_and_vars)
        variables = [v for _, v in grads_and_vars]
        return list(zip(self._tfhvd_reducer([g for g, _ in grads_and_vars], variables), variables))


class _ReducesBeforeClipping(_Reduces):
    """Keras 3: `apply` notes the variables, `_clip_gradients` reduces their gradients."""

    __slots__ = ()

    def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
        """Updates the variables with reduced gradients; as in the plain optimizer otherwise."""
        grads = list(grads)
        if trainable_variables is not None:
            trainable_variables = list(trainable_variables)
        awaited = [
            variable
            for gradient, variable in zip(grads, trainable_variables or self._trainable_variables)
            if gradient is not None and not getattr(variable, "overwrite_with_gradient", False)
        ]
        _set(self, "_tfhvd_awaited", awaited)
        result = super().apply(grads, trainable_variables)
        if self._tfhvd_awaited and not self.gradient_accumulation_steps:
            raise RuntimeError(
                f"{type(self).__name__} was updated without its gradients being reduced: this "
                "version of Keras does not call _clip_gradients in apply. Use "
                "DistributedGradientTape in a custom training loop instead, and please report this."
            )
        return result

    def _clip_gradients(self, grads: Any) -> Any:
        grads = list(grads)
        awaited = self._tfhvd_awaited
        _set(self, "_tfhvd_awaited", [])
        return super()._clip_gradients(self._tfhvd_reducer(grads, awaited))


class _ReducesBeforeApply(_Reduces):
    """Keras 3, where the optimizer has an `apply` of its own: reduces on each call of it."""

    __slots__ = ()

    def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
        """Updates the variables with reduced gradients; as in the plain optimizer otherwise."""
        variables = (
            self._trainable_variables if trainable_variables is None else list(trainable_variables)
        )
        return super().apply(
            self._tfhvd_reducer(grads, variables), trainable_variables and variables
        )


class _ReducesOnAggregation(_Reduces):
    """tf_keras."""

    __slots__ = ()

    def aggregate_gradients(self, grads_and_vars: Any) -> Any:
        """Reduces the gradients over the ranks."""
        return super().aggregate_gradients(self._reduced(grads_and_vars))


class _ReducesOnLegacyAggregation(_Reduces):
    """tf_keras.optimizers.legacy."""

    __slots__ = ()

    def _aggregate_gradients(self, grads_and_vars: Any) -> Any:
        return super()._aggregate_gradients(self._reduced(grads_and_vars))


class _Delegates(_Reduces):
    """A loss scale: its inner optimizer reduces."""

    __slots__ = ()


def _wrap(optimizer: Any, package: str, reducer: GradientReducer) -> Any:
    """Makes the second object over the optimizer's state."""
    inner = _inner(optimizer)
    if inner is not None:
        attribute = "inner_optimizer" if "inner_optimizer" in vars(optimizer) else "_optimizer"
        # Past the optimizer's own __setattr__: to what it tracks, the state is the same.
        vars(optimizer)[attribute] = _wrap(inner, package, reducer)
        hook = _Delegates
    elif package == _compat.KERAS_3:
        plain_apply = _compat.defined_in(optimizer, "apply") == "BaseOptimizer"
        hook = _ReducesBeforeClipping if plain_apply else _ReducesBeforeApply
    else:
        hook = (
            _ReducesOnAggregation
            if hasattr(optimizer, "aggregate_gradients")
            else _ReducesOnLegacyAggregation
        )
    wrapped: Any = object.__new__(_subclass_of(type(optimizer), hook))
    _set(wrapped, "__dict__", vars(optimizer))
    _set(wrapped, "_tfhvd_reducer", reducer)
    _set(wrapped, "_tfhvd_awaited", [])
    return wrapped


@functools.cache
def _subclass_of(cls: type, hook: type) -> type:
    """Makes the class of a wrapped optimizer.

    `__class__` gives the plain class, as is allowed to objects that stand for others: Keras writes
    it into saved models, which so need no tfhvd to be opened. `type()` and `isinstance` see the
    class itself.
    """
    body = {
        # Slots, since __dict__ is shared with the plain optimizer.
        "__slots__": ("_tfhvd_reducer", "_tfhvd_awaited"),
        "__class__": property(lambda self: cls),
        "__module__": cls.__module__,
        "__doc__": cls.__doc__,
    }
    return types.new_class(
        cls.__name__, (hook, cls), exec_body=lambda namespace: namespace.update(body)
    )


def _inner(optimizer: Any) -> Any:
    return getattr(optimizer, "inner_optimizer", None)


def _set(wrapped: Any, name: str, value: Any) -> None:
    """Sets a slot, past Keras' own __setattr__ which would track the value as state to save."""
    object.__setattr__(wrapped, name, value)


def _accumulate(optimizer: Any, package: str, passes: int, average: bool) -> float:
    """Arranges for accumulation; returns what the accumulated gradient must be multiplied by."""
    if passes < 1:
        raise ValueError(f"Received: backward_passes_per_step={passes}. Expected: 1 or more.")
    if passes == 1:
        return 1.0
    if package != _compat.KERAS_3 or _compat.defined_in(optimizer, "apply") != "BaseOptimizer":
        raise NotImplementedError(
            f"Received: backward_passes_per_step={passes} with {type(optimizer).__name__}. "
            "Expected: 1; Keras 3's own optimizers accumulate, as gradient_accumulation_steps."
        )
    if optimizer.built or optimizer.gradient_accumulation_steps not in (None, passes):
        raise ValueError(
            f"Received: backward_passes_per_step={passes} with an optimizer that is built or has "
            f"gradient_accumulation_steps={optimizer.gradient_accumulation_steps}. Expected: a new "
            f"optimizer with gradient_accumulation_steps={passes} or None."
        )
    optimizer.gradient_accumulation_steps = passes
    return 1.0 if average else float(passes)  # Keras averages what it accumulates.


def _agree(optimizer: Any, finite: Any) -> Any:
    """Makes a loss scale skip an update where any rank's gradients are not finite."""
    inner = _inner(optimizer)
    if not isinstance(inner, _Reduces):
        return finite
    return inner._tfhvd_reducer.all_ranks(finite)


@functools.cache
def _say_once(text: str) -> None:
    if not is_initialized() or rank() == 0:
        _logger.warning(text)
