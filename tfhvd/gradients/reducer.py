"""Reducing a list of gradients over the ranks: the one place that does it.

The optimizers and the gradient tape differ only in when they call a `GradientReducer`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
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
from tfhvd.gradients import buckets, loss_scale, sample_weights
from tfhvd.gradients.gradient import after, scaled, values_of, with_values
from tfhvd.gradients.indexed_slices import SlicesReducer, is_sparse, name_of_first, sum_duplicates
from tfhvd.gradients.local_variables import LocalVariables
from tfhvd.gradients.options import ReductionOptions
from tfhvd.ops import Average, Sum, allreduce, compiled, grouped_allreduce
from tfhvd.ops.counted_allgather import counted_allgather
from tfhvd.ops.finite_check import FiniteCheck, can_be_checked, share_of_finite
from tfhvd.ops.names import (
    ALONE,
    BackwardPass,
    Identity,
    label_of_variable,
    outermost_graph,
)
from tfhvd.ops.topology import size_when_run
from tfhvd.ops.weighted_allreduce import weighted_allreduce
from tfhvd.runtime import process, updates
from tfhvd.runtime.library import load_native
from tfhvd.runtime.process_sets import checked_id, has_peers

if TYPE_CHECKING:
    from tfhvd.compat.types import Gradient, Variable

# Where nothing depends on the look at gradients, it is at so many values of each: a NaN that comes
# from the loss, or from a layer above, is in all of them. It costs next to nothing.
_SAMPLE = 4096

_NAMES_IN_USE = "tfhvd/gradient_names"  # a collection of the outermost graph


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
    ) -> list[Gradient]:
        """Reduces each gradient once.

        Args:
            gradients: tensors of any shape, IndexedSlices, or None for what has no gradient. Which
                are None must be the same on every rank.
            variables: what the gradients belong to, in the same order: they give the names.
            generic_names: whether names say the index among the shared gradients only.

        Returns:
            The reduced gradients in the same order, with the same shapes and types, None where None
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
        updates.note_reduced(variables)
        # XLA knows no list of unique rows: where other ranks may send rows.
        rows: frozenset[int] = frozenset()
        if not self.options.sparse_as_dense and compiled.is_compiled():
            rows = frozenset(i for i, g in enumerate(gradients) if is_sparse(g))
        if self.options.sparse_as_dense or rows:
            gradients = [tf.convert_to_tensor(g) if is_sparse(g) else g for g in gradients]
        gradients = [sum_duplicates(g) if is_sparse(g) else g for g in gradients]
        if has_peers(self.options.process_set):
            process.take_part()
            local = self.local.keys()
            own = [key_of(variable) in local for variable in variables]
            shared = [None if o else g for o, g in zip(own, gradients)]
            names = self._names(variables, own, generic_names)
            with updates.of_ours():
                reduced = self._reduce(shared, variables, rows, names)
            part = self._part_of_local() if any(own) else 1.0
            gradients = [scaled(g, part) if o else r for o, g, r in zip(own, gradients, reduced)]
        return [scaled(g, self._scale) for g in gradients]

    def _part_of_local(self) -> float | tf.Tensor:
        """What the gradients of local variables are multiplied by."""
        if not self.options.scale_local_gradients:
            return 1.0
        ranks = size_when_run(checked_id(self.options.process_set))
        return 1.0 / ranks if isinstance(ranks, int) else 1.0 / tf.cast(ranks, tf.float64)

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
        """Whether steps that make one update are to be weighed by their samples.

        XLA would have to know the samples of several steps when it compiles one.
        """
        return self._weight() is not None and not compiled.is_compiled()

    def all_ranks(self, condition: tf.Tensor) -> tf.Tensor:
        """Whether a condition (a bool tensor without dimensions) holds on every rank."""
        if not has_peers(self.options.process_set):
            return condition
        [name] = _unique_names(f"{self._prefix}/all_ranks", [None])
        # Not the least of them: ranks that have joined bring zeros.
        failed = tf.cast(tf.logical_not(condition), tf.int32)
        ranks = self.options.process_set
        with updates.of_ours():
            count = allreduce(failed, op=Sum, name=Identity(name), process_set=ranks)
        return tf.equal(count, 0)

    def _names(self, variables: list[Variable], own: list[bool], generic: bool) -> list[str]:
        """Names the reduction of each variable; those that are this rank's own are not reduced."""
        if not generic:
            return _unique_names(self._prefix, variables)
        names = iter(_unique_names(self._prefix, [None] * own.count(False)))
        return ["" if o else next(names) for o in own]

    def _reduce(
        self,
        gradients: list[Gradient],
        variables: list[Variable],
        rows: frozenset[int],
        names: list[str],
    ) -> list[Gradient]:
        """Reduces gradients; those at `rows` are dense here, and maybe slices on other ranks."""
        names = [name_of_first(name) if i in rows else name for i, name in enumerate(names)]
        dense = [i for i, g in enumerate(gradients) if g is not None and not is_sparse(g)]
        compression = self.options.compression
        apart = []
        if has_state(compression):
            apart = [i for i in dense if i not in rows and compression.compresses(gradients[i])]
        together = [i for i in dense if i not in rows and i not in apart]
        groups = self._grouped(together, gradients, variables)
        groups += [[i] for i in dense if i in rows]  # as on ranks where they are slices
        check = self._finite_check(groups, gradients)
        if check is not None:
            gradients = [with_values(g, check.tensors.get(i)) for i, g in enumerate(gradients)]
        if check is not None and self.options.quarantine:
            gradients = [scaled(g, check.share) for g in gradients]
        votes_at = len(gradients)
        if check is not None:
            gradients = [*gradients, check.vote]
            names = [*names, *_unique_names(f"{self._prefix}/finite", [None])]
            self._add_votes(groups, votes_at, gradients)
        reduced: list[Gradient] = [None] * len(gradients)
        if has_state(compression):
            for i in apart:
                reduced[i] = compression(gradients[i], variables[i], self._exchange(names[i]))
        reduce_all = self._reduce_compiled if compiled.is_compiled() else self._reduce_groups
        for i, tensor in zip(itertools.chain(*groups), reduce_all(groups, gradients, names)):
            reduced[i] = tensor
        for i, gradient in enumerate(gradients):
            if is_sparse(gradient):
                reduced[i] = self._slices(gradient, variables[i], names[i], self._weight())
        if check is None:
            return reduced
        return self._noted(check, reduced[votes_at], reduced[:votes_at], variables)

    def _finite_check(
        self, groups: list[list[int]], gradients: list[Gradient]
    ) -> FiniteCheck | None:
        """Looks at the gradients; None where nobody wants to know."""
        action = load_native().config().on_not_finite.name
        quarantine = self.options.quarantine
        unwanted = action == "OFF" or loss_scale.looks()
        if self.options.op not in (Average, Sum) or (unwanted and not quarantine):
            return None
        grouped = {*itertools.chain(*groups)}
        others = [[i] for i, g in enumerate(gradients) if g is not None and i not in grouped]
        looked_at: list[tuple[list[int], list[tf.Tensor]]] = []
        for bucket in [*groups, *others]:
            values = {i: values_of(gradients[i]) for i in bucket}
            able = [i for i, value in values.items() if can_be_checked(value)]
            if able:
                looked_at.append((able, [values[i] for i in able]))
        most = 0 if quarantine or action == "RAISE" else _SAMPLE
        return FiniteCheck(looked_at, most) if looked_at else None

    def _add_votes(self, groups: list[list[int]], at: int, gradients: list[Gradient]) -> None:
        """Has the votes travel in the bucket that is ready last, or as one of their own."""
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
        """Takes note of the votes; returns what the gradients are after it."""
        left_out = self.options.quarantine
        labels = [variable_name(v) or f"variable {i}" for i, v in enumerate(variables)]
        set_id = checked_id(self.options.process_set)
        noted = check.note(votes, self._prefix, labels, left_out, set_id)
        if noted is not None:
            raises = load_native().config().on_not_finite.name == "RAISE"
            reduced = after(noted, reduced, holds=raises)
        if not left_out or self.options.op != Average:
            return reduced
        whole = tf.math.divide_no_nan(1.0, share_of_finite(votes))
        return [scaled(gradient, whole) for gradient in reduced]

    def _weight(self) -> tf.Tensor | None:
        """Returns what this rank counts in an average; None where all count alike."""
        return sample_weights.current() if self.options.op == Average else None

    def _exchange(self, name: str) -> Exchange:
        return Exchange(
            reduce=lambda tensor, part: self._reduce_dense(
                [tensor], [f"{name}/{part}"], Compression.none
            )[0],
            gather=lambda tensors, part: self._gather(tensors, f"{name}/{part}"),
            weight=self._weight(),
        )

    def _gather(
        self, tensors: Sequence[tf.Tensor], name: str
    ) -> tuple[list[tf.Tensor], tf.Tensor | float]:
        """Returns the ranks' tensors, joined, and what their sum is to be multiplied by."""
        joined, ranks = counted_allgather(tensors, Identity(name), self.options.process_set)
        return joined, 1.0 / tf.cast(ranks, tf.float64) if self.options.op == Average else 1.0

    def _grouped(
        self, dense: list[int], gradients: list[Gradient], variables: list[Variable]
    ) -> list[list[int]]:
        """Divides the positions of dense gradients into what is reduced together."""
        if not self.options.groups:
            if tf.executing_eagerly():
                # One call, for it waits for its results. It begins as the first bucket of a graph
                # does, so that ranks of which only some trace a function meet, and are told.
                return [dense[::-1]] if dense else []
            parts = [_part(gradients[i], variables[i]) for i in dense]
            return [[dense[at] for at in bucket] for bucket in buckets.divide(parts)]
        if isinstance(self.options.groups, int):
            count = min(self.options.groups, len(dense))
            cuts = [len(dense) * i // count for i in range(count + 1)] if count else []
            return [dense[begin:end] for begin, end in zip(cuts, cuts[1:])]
        group_of = {
            key_of(v): number for number, group in enumerate(self.options.groups) for v in group
        }
        together: dict[int | str, list[int]] = {}
        for i in dense:
            together.setdefault(group_of.get(key_of(variables[i]), f"alone/{i}"), []).append(i)
        return list(together.values())

    def _reduce_groups(
        self, groups: list[list[int]], gradients: list[Gradient], names: list[str]
    ) -> list[Gradient]:
        reduced: list[Gradient] = []
        together = ALONE
        if groups and tf.inside_function():  # in a session's graph, some may be run and others not
            together = BackwardPass(names[groups[0][0]], len(groups))
        for group in groups:
            tensors = [gradients[i] for i in group]
            own = [names[i] for i in group]
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
        weight = self._weight()
        if weight is not None and all(tensor.dtype.is_floating for tensor in tensors):
            return weighted_allreduce(tensors, weight, **arguments)
        arguments["op"] = self.options.op
        if len(tensors) == 1:
            return [allreduce(tensors[0], **arguments)]
        return grouped_allreduce(tensors, **arguments)


def _part(gradient: tf.Tensor, variable: Variable) -> buckets.Part:
    """What a gradient's bucket depends on: what is the same on every rank."""
    elements = tf.TensorShape(variable.shape).num_elements()
    size = None if elements is None else elements * gradient.dtype.size
    return buckets.Part(size, (gradient.dtype, gradient.device))


def _unique_names(prefix: str, variables: Sequence[Variable | None]) -> list[str]:
    """Names a reduction per variable.

    A graph may run reductions side by side, so that a name is used once in it. Eager calls wait for
    their results, and use the same names each time, which the engine then knows. A function that is
    traced again begins anew: one rank may trace more often than another.
    """
    used: set[str] = set()
    if not tf.executing_eagerly():
        collection = outermost_graph().get_collection_ref(_NAMES_IN_USE)
        if not collection:
            collection.append(used)
        used = collection[0]
    names: list[str] = []
    for position, variable in enumerate(variables):
        whose = variable_name(variable)
        wanted = f"{prefix}/{label_of_variable(position, whose)}"
        name, count = wanted, 1
        while name in used:
            name, count = f"{wanted}_{count}", count + 1
        used.add(name)
        names.append(Identity.of_variable(name, whose))
    if not tf.executing_eagerly():
        updates.note_names(used)
    return names
