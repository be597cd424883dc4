"""The hooks of wrapped optimizers: the methods in which they reduce gradients.

| optimizer | gradients are reduced in | accumulated by |
|---|---|---|
| Keras 3 | `_clip_gradients`: once per update, after accumulation, before clipping | Keras |
| Keras 3, built before, or a class that defines `apply` (MultiOptimizer) | `apply` | tfhvd |
| tf_keras | `aggregate_gradients`: before clipping, before a loss scale looks for inf | tfhvd |
| tf_keras legacy | `_aggregate_gradients`: as in tf_keras | tfhvd |
| LossScaleOptimizer of either | the inner optimizer | the inner optimizer |
"""

from __future__ import annotations

import contextlib
import copy
import functools
import pickle
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NoReturn, SupportsIndex

import tensorflow as tf

from tfhvd.compat import keras as keras_compat
from tfhvd.compat import private
from tfhvd.compat.object_proxy import Wrapped
from tfhvd.compression import has_state
from tfhvd.errors import NotSynchronizedError
from tfhvd.gradients import sample_weights
from tfhvd.gradients.accumulator import GradientAccumulator
from tfhvd.gradients.awaited import Awaited
from tfhvd.gradients.gradient import after_all, scaled
from tfhvd.gradients.options import ReductionOptions
from tfhvd.gradients.reducer import GradientReducer
from tfhvd.keras.wrap import saved_arguments
from tfhvd.keras.wrap.compression_state import saveable
from tfhvd.ops import sync_monitor

if TYPE_CHECKING:
    from tfhvd.compat.types import Gradient, GradientsAndVariables, Layer, Optimizer, Variable

    _Pairs = Iterable[tuple[Gradient, Variable]]

_AGGREGATES = "experimental_aggregate_gradients"  # an argument of tf_keras


class _FromConfig:
    """`from_config` of a wrapped optimizer: the new optimizer is wrapped with the same options."""

    def __get__(self, optimizer: Reduces | None, owner: type) -> Callable[..., Any]:
        if optimizer is None:
            return functools.partial(_refuse_class, owner.__name__)
        return lambda *args, **kwargs: _again(
            optimizer, optimizer.__class__.from_config(*args, **kwargs)
        )


class Reduces(Wrapped):
    """The base of all wrapped optimizers; the classes below add the hooks.

    A copy of a wrapped optimizer is wrapped as well, or refused. Keras serializes the plain class.
    """

    __slots__ = ()
    _tfhvd: GradientAccumulator
    from_config = _FromConfig()

    def __copy__(self) -> Optimizer:
        return _again(self, copy.copy(_plain(self)))

    def __deepcopy__(self, memo: dict[int, Any]) -> Optimizer:
        return _again(self, copy.deepcopy(_plain(self), memo))

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        options, local = reducer_of(self).options, reducer_of(self).local
        if (
            local.keys()
            or options.local_layers
            or not isinstance(options.groups, (int, type(None)))
        ):
            raise pickle.PicklingError(
                f"A distributed {self.__class__.__name__} that knows variables by themselves "
                "(local ones, or groups of them) cannot be pickled; pickle the plain optimizer, "
                "and wrap what is read with hvd.DistributedOptimizer."
            )
        _refuse_state(self)
        return _distribute, (_plain(self), options)

    def register_local_var(self, var: Variable) -> None:
        """Excepts a variable from the reduction: its gradient stays this rank's own.

        Args:
            var: a variable that the optimizer updates.
        """
        reducer_of(self).local.add(var)

    @property
    def compression_state(self) -> Layer | None:
        """The compression's state for Keras 3 to save; None without a stateful compression.

        Plain Keras opens a file with this state, too: it ignores the state.
        """
        return saveable(reducer_of(self).options.compression)

    @property
    def distributed_arguments(self) -> Layer:
        """The arguments of `DistributedOptimizer` for Keras to save, which `load_model` reads."""
        package = keras_compat.keras_package(self) or keras_compat.KERAS_3
        return saved_arguments.saveable(reducer_of(self), package)

    def __dir__(self) -> list[str]:
        # Keras saves the attributes in dir(), which would list the plain class only.
        return [*super().__dir__(), "compression_state", "distributed_arguments"]

    def _require_reduction(self, method: str) -> None:
        """Raises an error if `apply_gradients` has never called `method`, which reduces gradients.

        After the first such call, a traced function may reduce them without calling Python.
        """
        if self._tfhvd.is_asked:
            return
        name = self.__class__.__name__
        raise NotSynchronizedError(
            f"{name}.apply_gradients has updated variables without calling self.{method}, which "
            f"reduces the gradients of a distributed {name}: each rank used its own. Call "
            f"self.{method} in it, or leave the optimizer plain and take the gradients from "
            "hvd.DistributedGradientTape."
        )

    def _added(self, grads_and_vars: _Pairs) -> GradientsAndVariables:
        grads_and_vars = list(grads_and_vars)
        variables = [v for _, v in grads_and_vars]
        return list(zip(self._tfhvd.add([g for g, _ in grads_and_vars], variables), variables))


class BeforeClipping(GradientAccumulator):
    """The state of an optimizer that accumulates itself: the variables whose gradients follow."""

    def __init__(self, reduce: GradientReducer) -> None:
        super().__init__(reduce)
        self.weights = sample_weights.OfSeveralSteps()

    @property
    def shared_state(self) -> list[tf.Variable]:
        """The weights of the accumulated sums; the sums are variables of the optimizer."""
        return [self.weights.state()]


class _ReducesInApply(Reduces):
    """An optimizer of Keras 3."""

    __slots__ = ()

    def apply_gradients(self, grads_and_vars: _Pairs, *args: Any, **kwargs: Any) -> Any:
        """Updates the variables with reduced gradients; as in the plain optimizer otherwise."""
        result = super().apply_gradients(grads_and_vars, *args, **kwargs)
        self._require_reduction("apply")
        return result


class ReducesBeforeClipping(_ReducesInApply):
    """An optimizer of Keras 3: `apply` records the variables, `_clip_gradients` reduces."""

    __slots__ = ()
    _tfhvd: BeforeClipping

    def apply(
        self, grads: Iterable[Gradient], trainable_variables: Iterable[Variable] | None = None
    ) -> tf.Operation | None:
        """Updates the variables with reduced gradients; as in the plain optimizer otherwise."""
        self._tfhvd.is_asked = True
        grads = list(grads)
        if trainable_variables is not None:
            trainable_variables = list(trainable_variables)
        variables = trainable_variables or private.trained_by(self)
        updated = [not getattr(v, "overwrite_with_gradient", False) for v in variables]
        reduced = [u and g is not None for g, u in zip(grads, updated)]
        self._tfhvd.awaited = Awaited()
        if any(reduced):
            pairs = [pair for pair, u in zip(zip(grads, variables), updated) if u]
            self._tfhvd.awaited = Awaited.of(*zip(*pairs))
        # They are reduced in the last of several passes.
        sync_monitor.note_reduced(self._tfhvd.awaited.with_gradients())
        if self.gradient_accumulation_steps and self._tfhvd.reduce.weighs_steps():
            calls = tf.convert_to_tensor(private.iterations_of(self))
            passes = calls % self.gradient_accumulation_steps
            part = self._tfhvd.weights.add(grads, is_first=tf.equal(passes, 0))
            grads = [scaled(g, part) if r else g for g, r in zip(grads, reduced)]
        # Without this, Keras would count a pass also in a step that finds the data at their end.
        accumulates = bool(self.gradient_accumulation_steps)
        with after_all(grads) if accumulates else contextlib.nullcontext():
            result = super().apply(grads, trainable_variables)
        if self._tfhvd.awaited.variables and self._has_updated():
            raise RuntimeError(
                f"{type(self).__name__} was updated without its gradients being reduced: this "
                "version of Keras does not call _clip_gradients in apply. Use "
                "DistributedGradientTape in a custom training loop instead, and please report this."
            )
        return result

    def _has_updated(self) -> bool:
        """Whether `apply` has just updated the variables, and not only accumulated gradients.

        In a graph it returns True: the trace contains both, and the run decides between them.
        """
        steps = self.gradient_accumulation_steps
        if not steps or not tf.executing_eagerly():
            return True
        return int(private.iterations_of(self)) % steps == 0

    def _clip_gradients(self, grads: list[Gradient]) -> list[Gradient]:
        awaited, self._tfhvd.awaited = self._tfhvd.awaited, Awaited()
        steps = self.gradient_accumulation_steps
        step: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
        if steps and self._tfhvd.reduce.weighs_steps():
            rest, step = self._tfhvd.weights.rest(steps), self._tfhvd.weights.step()
            grads = [scaled(g, rest) for g in grads]
        elif steps:
            step = sample_weights.alike()
        with step:
            return super()._clip_gradients(awaited.reduced(grads, self._tfhvd.add))


class ReducesBeforeApply(_ReducesInApply):
    """An optimizer of Keras 3 that cannot accumulate itself: reduces before `apply`."""

    __slots__ = ()

    def apply(
        self, grads: Iterable[Gradient], trainable_variables: Iterable[Variable] | None = None
    ) -> tf.Operation | None:
        """Updates the variables with reduced gradients; as in the plain optimizer otherwise."""
        self._tfhvd.is_asked = True
        given = None if trainable_variables is None else list(trainable_variables)
        variables = private.trained_by(self) if given is None else given
        # The update may be in a branch of a graph, in which no variables can be created.
        keras_compat.build_optimizer(self, variables)
        gradients = self._tfhvd.add(grads, variables)
        update = super().apply
        return self._tfhvd.apply(gradients, lambda: update(gradients, given))


class ReducesOnAggregation(Reduces):
    """An optimizer of tf_keras."""

    __slots__ = ()

    def aggregate_gradients(self, grads_and_vars: _Pairs) -> _Pairs:
        """Reduces the gradients over the ranks."""
        self._tfhvd.is_asked = True
        return super().aggregate_gradients(self._added(grads_and_vars))

    def apply_gradients(
        self,
        grads_and_vars: _Pairs,
        name: str | None = None,
        skip_gradients_aggregation: bool = False,
        **kwargs: Any,
    ) -> tf.Operation | None:
        """Updates the variables with reduced gradients; as in the plain optimizer otherwise."""
        update = super().apply_gradients
        if not self._tfhvd.accumulates:
            grads_and_vars = list(grads_and_vars)
            result = update(grads_and_vars, name, skip_gradients_aggregation, **kwargs)
            if grads_and_vars and not skip_gradients_aggregation and kwargs.get(_AGGREGATES, True):
                self._require_reduction("aggregate_gradients")
            return result
        if not skip_gradients_aggregation and kwargs.pop(_AGGREGATES, True):
            grads_and_vars = self.aggregate_gradients(grads_and_vars)
        pairs = list(grads_and_vars)
        return self._tfhvd.apply(
            [gradient for gradient, _ in pairs],
            lambda: update(pairs, name, skip_gradients_aggregation=True),
        )


class ReducesOnLegacyAggregation(Reduces):
    """An optimizer of tf_keras.optimizers.legacy."""

    __slots__ = ()

    def _aggregate_gradients(self, grads_and_vars: _Pairs) -> GradientsAndVariables:
        self._tfhvd.is_asked = True
        awaited, self._tfhvd.awaited = self._tfhvd.awaited, Awaited()
        pairs = list(grads_and_vars)
        if not awaited.variables:
            return super()._aggregate_gradients(self._added(pairs))
        reduced = awaited.reduced([gradient for gradient, _ in pairs], self._tfhvd.add)
        return super()._aggregate_gradients(list(zip(reduced, awaited.with_gradients())))

    def apply_gradients(
        self,
        grads_and_vars: _Pairs,
        name: str | None = None,
        experimental_aggregate_gradients: bool = True,
    ) -> tf.Operation | None:
        """Updates the variables with reduced gradients; as in the plain optimizer otherwise."""
        update = super().apply_gradients
        pairs = list(grads_and_vars)
        self._tfhvd.awaited = Awaited.of([g for g, _ in pairs], [v for _, v in pairs])
        if not self._tfhvd.accumulates:
            result = update(pairs, name, experimental_aggregate_gradients)
            if experimental_aggregate_gradients:
                self._require_reduction("_aggregate_gradients")
            return result
        pairs = [(gradient, v) for gradient, v in pairs if gradient is not None]
        if experimental_aggregate_gradients:
            pairs = self._aggregate_gradients(self._transform_unaggregated_gradients(pairs))
        pairs = list(pairs)
        return self._tfhvd.apply(
            [gradient for gradient, _ in pairs],
            lambda: update(pairs, name, experimental_aggregate_gradients=False),
        )


class Delegates(Reduces):
    """A loss scale, whose inner optimizer reduces."""

    __slots__ = ()


def _plain(optimizer: Reduces) -> Optimizer:
    """Returns a plain optimizer that shares the state of a wrapped one."""
    plain = object.__new__(optimizer.__class__)
    object.__setattr__(plain, "__dict__", vars(optimizer))
    return plain


def _again(optimizer: Reduces, plain: Optimizer) -> Optimizer:
    """Wraps `plain`, a copy of a wrapped optimizer, with the same options and local variables."""
    _refuse_state(optimizer)
    wrapped = _distribute(plain, reducer_of(optimizer).options)
    for variable in reducer_of(optimizer).local.variables():
        reducer_of(wrapped).local.add(variable)
    return wrapped


def _distribute(plain: Optimizer, options: ReductionOptions) -> Optimizer:
    from tfhvd.keras.optimizer import distribute  # It imports the hooks of this module.

    return distribute(plain, options)


def _refuse_state(optimizer: Reduces) -> None:
    compression = reducer_of(optimizer).options.compression
    if has_state(compression):
        raise TypeError(
            f"A distributed {optimizer.__class__.__name__} cannot be copied with the state of its "
            f"{type(compression).__name__}; write hvd.DistributedOptimizer(<a copy of the plain "
            "optimizer>, compression=<a new one>)."
        )


def _refuse_class(name: str, *args: object, **kwargs: object) -> NoReturn:
    raise TypeError(
        "The class of a distributed optimizer cannot make a distributed optimizer; instead of "
        "type(optimizer).from_config(config) call optimizer.from_config(config), or "
        f"hvd.DistributedOptimizer({name}(...))."
    )


def inner_of(optimizer: object) -> Optimizer | None:
    """Returns the optimizer in a loss scale; None for all others."""
    return getattr(optimizer, "inner_optimizer", None)


def reduces(optimizer: object) -> bool:
    """Whether `DistributedOptimizer` made an optimizer, or the optimizer in its loss scale."""
    return isinstance(optimizer, Reduces) or isinstance(inner_of(optimizer), Reduces)


def reducer_of(optimizer: Optimizer) -> GradientReducer:
    """Returns the reducer of an optimizer for which `reduces` is True."""
    return accumulator_of(optimizer).reduce


def accumulator_of(optimizer: Optimizer) -> GradientAccumulator:
    """Returns the accumulator of an optimizer for which `reduces` is True.

    If Keras itself has put a loss scale around a wrapped optimizer, the loss scale is not wrapped,
    and the accumulator is that of the inner optimizer.
    """
    own: Any = optimizer if isinstance(optimizer, Reduces) else inner_of(optimizer)
    return own._tfhvd
