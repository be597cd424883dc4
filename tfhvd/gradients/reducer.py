"""Reducing a list of gradients over the ranks: the one place that does it.

The optimizers and the gradient tape differ only in when they call a `GradientReducer`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tfhvd.compat.surroundings import require_no_strategy
from tfhvd.compat.variables import key_of, variable_name
from tfhvd.compression import (
    Compressing,
    Compression,
    has_state,
    without_state,
)
from tfhvd.compression.stateful import Exchange
from tfhvd.gradients import buckets, difference
from tfhvd.gradients.gradient import after, after_all, scaled, values_of, with_values
from tfhvd.gradients.indexed_slices import SlicesReducer, is_sparse, name_of_first, sum_duplicates
from tfhvd.gradients.local_variables import LocalVariables
from tfhvd.gradients.looks import is_said, leaves_out_outliers, look, may_raise
from tfhvd.gradients.names import unique_names
from tfhvd.gradients.options import ReductionOptions
from tfhvd.job import process
from tfhvd.ops import Average, ReduceOp, Sum, allreduce, compiled, grouped_allreduce, sync_monitor
from tfhvd.ops.batch_weight import StepOf, weight_of
from tfhvd.ops.batch_weight import current as current_step
from tfhvd.ops.counted_allgather import counted_allgather
from tfhvd.ops.finite_check import (
    FiniteCheck,
    all_finite,
    can_be_checked,
    in_proportion,
    share_of_finite,
)
from tfhvd.ops.names import ALONE, BackwardPass, Identity
from tfhvd.ops.topology import size_when_run
from tfhvd.ops.weighted_allreduce import weighted_allreduce
from tfhvd.runtime.process_sets import checked_id, has_peers

if TYPE_CHECKING:
    from tfhvd.compat.types import Gradient, Variable


class GradientReducer:
    """Reduces lists of gradients over the ranks, each gradient once per call.

    Args:
        options: how, with a name. Passes are not for it: see `tfhvd.gradients.accumulator`.
        scale: what every reduced gradient is multiplied by.

    Raises:
        TypeError: if a local layer is no layer of Keras.

    Example:
        >>> reduce = GradientReducer(ReductionOptions(name="loop", op=Sum))
        >>> gradients = reduce(tape.gradient(loss, variables), variables)
    """

    def __init__(self, options: ReductionOptions, scale: float = 1.0) -> None:
        self.options = options
        # The variables whose gradients are not reduced.
        self.local = LocalVariables(options.local_layers)
        self._scale = scale
        self._prefix = options.name or "gradients"  # of the reductions' names
        # The compression of what one with a state leaves alone.
        self._cast: Compressing = without_state(options.compression)
        self._slices = SlicesReducer(
            options.op, self._cast, options.device_sparse, options.process_set
        )

    def __call__(
        self,
        gradients: Iterable[Gradient],
        variables: Iterable[Variable],
        generic_names: bool = False,
        loss_scale: tf.Tensor | None = None,
    ) -> list[Gradient]:
        """Reduces each gradient once.

        Args:
            gradients: tensors of any shape, IndexedSlices, or None for what has no gradient. Which
                are None must be the same on every rank.
            variables: what the gradients belong to, in the same order: they give the names.
            generic_names: whether names say the index among the shared gradients only.
            loss_scale: what the loss has been multiplied by, without dimensions; None for nothing.

        Returns:
            The reduced gradients in the same order, with the same shapes and types, None if None
            was.

        Raises:
            TfhvdError: within a strategy of tf.distribute.
            ValueError: if the lists differ in length.
            NotImplementedError: for slices and an op that is not Average or Sum.
        """
        require_no_strategy()
        gradients, variables = list(gradients), list(variables)
        if len(gradients) != len(variables):
            raise ValueError(
                f"Each gradient needs its variable, and there are {len(gradients)} gradients and "
                f"{len(variables)} variables; pass one variable for each gradient."
            )
        sync_monitor.note_reduced(variables)
        # XLA knows no list of unique rows: relevant if other ranks may send rows.
        rows: frozenset[int] = frozenset()
        if not self.options.sparse_as_dense and compiled.is_compiled():
            rows = frozenset(i for i, g in enumerate(gradients) if is_sparse(g))
        if self.options.sparse_as_dense or rows:
            gradients = [tf.convert_to_tensor(g) if is_sparse(g) else g for g in gradients]
        gradients = [sum_duplicates(g) if is_sparse(g) else g for g in gradients]
        if has_peers(self.options.process_set):
            process.take_part()
            keys = self.local.keys()
            own = [key_of(variable) in keys for variable in variables]
            shared = [None if o else g for o, g in zip(own, gradients)]
            names = self._names(variables, own, generic_names)
            scales = any(own) and self.options.scale_local_gradients
            with sync_monitor.of_ours():
                local = self._part_of_average(gradients) if scales else 1.0
                with difference.named(shared, variables):
                    reduced = self._reduce(shared, variables, rows, names, own, loss_scale)
            gradients = [scaled(g, local) if o else r for o, g, r in zip(own, gradients, reduced)]
        return [scaled(g, self._scale) for g in gradients]

    def _part_of_average(
        self, gradients: list[Gradient], scaled_already: bool = False
    ) -> float | tf.Tensor:
        """What this rank counts in an average, maybe of gradients that are scaled for the step."""
        process_set = self.options.process_set
        step = self._step()
        if step is None:
            ranks = size_when_run(checked_id(process_set))
            return 1.0 / ranks if isinstance(ranks, int) else 1.0 / tf.cast(ranks, tf.float64)
        own = tf.cast(step.samples, tf.float64) if scaled_already else weight_of(step, tf.float64)
        [name] = unique_names(f"{self._prefix}/weights", [None])
        with after_all(gradients):
            own = tf.identity(own)
        total = allreduce(own, op=Sum, name=Identity(name), process_set=process_set)
        return tf.math.divide_no_nan(own, total)

    def _compressed(self, gradients: list[Gradient], rows: frozenset[int]) -> list[int]:
        """Returns the positions of what is reduced by a compression with a state."""
        compression = self.options.compression
        if not has_state(compression):
            return []
        return [
            i
            for i, g in enumerate(gradients)
            if g is not None and not is_sparse(g) and i not in rows and compression.compresses(g)
        ]

    def split(
        self, gradients: Iterable[Gradient], variables: Iterable[Variable]
    ) -> tuple[list[Gradient], list[Gradient]]:
        """Returns the gradients of local variables, and the others, each in their order."""
        local = self.local.keys()
        own: list[Gradient] = []
        shared: list[Gradient] = []
        for gradient, variable in zip(gradients, variables):
            (own if key_of(variable) in local else shared).append(gradient)
        return own, shared

    def weighs_steps(self) -> bool:
        """Whether steps that make one update are weighed by their samples.

        XLA would have to know the samples of several steps when it compiles one.
        """
        return self._weight() is not None and not compiled.is_compiled()

    def all_ranks(self, condition: tf.Tensor) -> tf.Tensor:
        """Whether a condition (a bool tensor without dimensions) holds on every rank."""
        if not has_peers(self.options.process_set):
            return condition
        [name] = unique_names(f"{self._prefix}/all_ranks", [None])
        # Not the least of them: ranks that have joined bring zeros.
        failed = tf.cast(tf.logical_not(condition), tf.int32)
        ranks = self.options.process_set
        with sync_monitor.of_ours():
            count = allreduce(failed, op=Sum, name=Identity(name), process_set=ranks)
        return tf.equal(count, 0)

    def _names(self, variables: list[Variable], own: list[bool], generic: bool) -> list[str]:
        """Names the reduction of each variable; those that are this rank's own are not reduced."""
        if not generic:
            return unique_names(self._prefix, variables)
        names = iter(unique_names(self._prefix, [None] * own.count(False)))
        return ["" if o else next(names) for o in own]

    def _reduce(
        self,
        gradients: list[Gradient],
        variables: list[Variable],
        rows: frozenset[int],
        names: list[str],
        own: list[bool],
        loss_scale: tf.Tensor | None,
    ) -> list[Gradient]:
        """Reduces gradients; those at `rows` are dense here, and maybe slices on other ranks."""
        step = self._step()
        if step is not None and step.factor is not None:
            gradients = [scaled(g, step.factor) for g in gradients]
        apart = self._compressed(gradients, rows)
        weighted = bool(apart) and step is not None
        share = self._part_of_average(gradients, scaled_already=True) if weighted else 1.0
        names = [name_of_first(name) if i in rows else name for i, name in enumerate(names)]
        dense = [i for i, g in enumerate(gradients) if g is not None and not is_sparse(g)]
        together = [i for i in dense if i not in rows and i not in apart]
        groups = buckets.grouped(together, gradients, variables, self.options.groups)
        groups += [[i] for i in dense if i in rows]  # as on ranks with slices
        check = None
        if self.options.op in (Average, Sum):
            needed = bool(apart) or self.options.quarantine
            check = look(groups, gradients, variables, names, needed)
        votes_at = len(gradients)
        if check is not None:
            gradients = [with_values(g, check.tensors.get(i)) for i, g in enumerate(gradients)]
            if self.options.quarantine:
                gradients = [scaled(g, check.share) for g in gradients]
            gradients = [*gradients, check.vote]
            names = [*names, *unique_names(f"{self._prefix}/finite", [None])]
            self._add_votes(groups, votes_at, gradients)
        marker = None
        if self.options.op in (Average, Sum) and not self.options.groups:
            marker = difference.marker(gradients[:votes_at], own)
        if marker is not None:
            missing, tensor = marker
            first, *others = groups or [[]]
            name = names[first[0] if missing is None else missing]
            groups = [[len(gradients), *first], *others]
            gradients, names = [*gradients, tensor], [*names, name]
        reduced: list[Gradient] = [None] * len(gradients)
        if compiled.is_compiled():
            results = self._reduce_compiled(groups, gradients, names)
        else:
            results = self._reduce_groups(groups, gradients, names, check)
        for i, tensor in zip(itertools.chain(*groups), results):
            reduced[i] = tensor
        for i, gradient in enumerate(gradients):
            if is_sparse(gradient):
                reduced[i] = self._slices(gradient, variables[i], names[i], self._weight())
        if marker is not None:
            reduced.pop()
        if check is None:
            return reduced
        votes = values_of(reduced.pop())
        if self.options.quarantine and self.options.op == Average:
            whole = tf.math.divide_no_nan(1.0, share_of_finite(votes))
            reduced = [scaled(gradient, whole) for gradient in reduced]
            share = tf.cast(share, whole.dtype) * whole
        compression = self.options.compression
        if has_state(compression):
            finite = None if self.options.quarantine else all_finite(votes)
            if leaves_out_outliers():
                fit = in_proportion(votes)
                finite = fit if finite is None else finite & fit
            for i in apart:
                exchange = self._exchange(names[i], share)
                exchange = exchange._replace(loss_scale=loss_scale, finite=finite)
                reduced[i] = compression(gradients[i], variables[i], exchange)
        return self._noted(check, votes, reduced, variables)

    def _add_votes(self, groups: list[list[int]], at: int, gradients: list[Gradient]) -> None:
        """Sends the votes in the bucket that is ready last, or as a separate bucket."""
        joins = bool(groups) and not self.options.groups and self._cast is Compression.none
        if joins and all(values_of(gradients[i]).dtype == tf.float32 for i in groups[-1]):
            groups[-1].append(at)
        else:
            groups.append([at])

    def _noted(
        self,
        check: FiniteCheck,
        votes: tf.Tensor,
        reduced: list[Gradient],
        variables: list[Variable],
    ) -> list[Gradient]:
        """Records the votes, if they are reported; returns the gradients after this."""
        left_out = self.options.quarantine
        if not left_out and not is_said():
            return reduced
        labels = [variable_name(v) or f"variable {i}" for i, v in enumerate(variables)]
        set_id = checked_id(self.options.process_set)
        noted = check.note(votes, self._prefix, labels, left_out, set_id)
        if noted is not None:
            reduced = after(noted, reduced, holds=may_raise())
        if not leaves_out_outliers():
            return reduced
        fit = tf.cast(in_proportion(votes), tf.float32)
        return [scaled(g, fit) if g is not None and can_be_checked(g) else g for g in reduced]

    def _weight(self) -> tf.Tensor | None:
        """Returns what this rank counts in an average; None if all count alike."""
        step = self._step()
        return None if step is None else tf.cast(step.samples, tf.int32)

    def _step(self) -> StepOf | None:
        return current_step() if self.options.op == Average else None

    def _exchange(self, name: str, share: float | tf.Tensor) -> Exchange:
        op = self.options.op if self._step() is None else Sum  # of shares
        return Exchange(
            reduce=lambda tensor, which: self._reduce_dense(
                [tensor], [f"{name}/{which}"], Compression.none, op=op
            )[0],
            gather=lambda tensors, which: self._gather(tensors, f"{name}/{which}", op),
            share=share,
        )

    def _gather(
        self, tensors: Sequence[tf.Tensor], name: str, op: ReduceOp
    ) -> tuple[list[tf.Tensor], tf.Tensor | float]:
        """Returns the ranks' tensors, joined, and the factor for their sum."""
        joined, ranks = counted_allgather(tensors, Identity(name), self.options.process_set)
        return joined, 1.0 / tf.cast(ranks, tf.float64) if op == Average else 1.0

    def _reduce_groups(
        self,
        groups: list[list[int]],
        gradients: list[Gradient],
        names: list[str],
        check: FiniteCheck | None,
    ) -> list[Gradient]:
        reduced: list[Gradient] = []
        together = ALONE
        if groups and tf.inside_function():  # in a session's graph, some may be run and others not
            together = BackwardPass(names[groups[0][0]], len(groups))
        for group in groups:
            tensors = [gradients[i] for i in group]
            own = [names[i] for i in group]
            with nullcontext() if check is None else check.over(group):
                reduced += self._reduce_dense(tensors, own, self._cast, together)
        return reduced

    def _reduce_compiled(
        self, groups: list[list[int]], gradients: list[Gradient], names: list[str]
    ) -> list[Gradient]:
        """Does the same in a compiled function: begins each gradient, and finishes all together.

        So they travel during the rest of the backward pass.
        """
        begun: list[tf.Tensor] = []
        contexts: list[Any] = []
        with compiled.begin_only():
            for group in groups:
                pairs = [self._cast.compress(gradients[i]) for i in group]
                contexts += [context for _, context in pairs]
                small = [tensor for tensor, _ in pairs]
                begun += self._reduce_dense(small, [names[i] for i in group], Compression.none)
        finished = compiled.finish(begun) if begun else []
        return [self._cast.decompress(t, c) for t, c in zip(finished, contexts)]

    def _reduce_dense(
        self,
        tensors: list[tf.Tensor],
        names: list[str],
        compression: Compressing,
        backward_pass: BackwardPass = ALONE,
        op: ReduceOp | None = None,
    ) -> list[tf.Tensor]:
        factor = self.options.gradient_predivide_factor
        name = Identity.of_group(names[0], names)
        name.backward_pass = backward_pass
        arguments: dict[str, Any] = {
            "name": name,
            "compression": compression,
            "device_dense": self.options.device_dense,
            "prescale_factor": 1.0 / factor,
            "postscale_factor": factor,
            "process_set": self.options.process_set,
        }
        weight = self._weight() if op is None else None
        if weight is not None and all(tensor.dtype.is_floating for tensor in tensors):
            return weighted_allreduce(tensors, weight, **arguments)
        arguments["op"] = self.options.op if op is None else op
        if len(tensors) == 1:
            return [allreduce(tensors[0], **arguments)]
        return grouped_allreduce(tensors, **arguments)
