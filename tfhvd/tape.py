"""DistributedGradientTape: a gradient tape whose gradients are reduced over the ranks."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

import tensorflow as tf

from tfhvd.compat import loss_scales
from tfhvd.compat.object_proxy import Wrapped, wrap
from tfhvd.compat.surroundings import require_no_strategy
from tfhvd.compression import AnyCompression, Compression, has_state
from tfhvd.gradients.options import ReductionOptions
from tfhvd.gradients.reducer import GradientReducer
from tfhvd.loop_start import begin_as_one
from tfhvd.ops import Average, ReduceOp, sync_monitor
from tfhvd.ops.batch_moments import synchronize_keras
from tfhvd.ops.batch_weight import StepOf
from tfhvd.runtime.process_sets import ProcessSet, global_process_set

if TYPE_CHECKING:
    from tfhvd.compat.types import Gradient, Layer, Nested, Variable

_Tape = TypeVar("_Tape", bound=tf.GradientTape)


def DistributedGradientTape(  # noqa: N802 (Horovod's name)
    gradtape: _Tape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: AnyCompression = Compression.none,
    sparse_as_dense: bool = False,
    op: ReduceOp = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[Variable]] | None = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
    quarantine: bool = False,
    equal_start: bool = True,
) -> _Tape:
    """Wraps a tape, so that `gradient` returns gradients that are reduced over the ranks.

    Every rank must call `gradient` the same number of times, with the same sources. `jacobian` and
    `batch_jacobian` return the result of this rank. Do not apply the gradients with a wrapped
    optimizer, which would reduce them again.

    In the `train_step` of a Keras model, if `tfhvd.keras` is imported, ranks may have different
    amounts of data. An Average then counts every sample once, and the ranks stop together: see
    `tfhvd.keras.fit.patch`.

    Args:
        gradtape: the tape, new or with recorded operations, persistent or not. Both tapes share one
            recording.
        device_dense: the device that reduces dense gradients, "" for the device of the gradients.
        device_sparse: the device that reduces IndexedSlices, "" for the device of the slices.
        compression: the compression of gradients for the network, a member of `Compression`. With a
            state, such as `topk`, it reduces each gradient separately, and does not compress
            gradients for which it is unsuitable.
        sparse_as_dense: whether IndexedSlices become dense before the reduction. Otherwise the
            result is IndexedSlices, too, and rows or the whole tensor travel, whichever is smaller.
        op: Average, Sum, or, for dense gradients, Min, Max, Product or Adasum.
        gradient_predivide_factor: with Average, the divisor of gradients before the sum; the rest
            of the division by the number of ranks follows after the sum.
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
        equal_start: whether all ranks get the first rank's variables, and the state of their Keras
            optimizer, if ranks have begun with different values: before the first step in a
            `tf.function`, and at the second step of a loop that runs eagerly.

    Returns:
        A tape of a subclass of the class of `gradtape`, to use as a context manager or at once. Its
        `register_local_source(source)` excludes a source from the reduction;
        `get_local_and_global_gradients(gradients, sources)` separates the two kinds.

    Raises:
        TfhvdError: within a strategy of tf.distribute.
        TypeError: if `gradtape` is not a `tf.GradientTape`.
        ValueError: if arguments contradict each other.

    Example:
        >>> with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
        ...     loss = compute_loss()
        >>> gradients = tape.gradient(loss, model.trainable_variables)
    """
    options = ReductionOptions(
        device_dense=device_dense,
        device_sparse=device_sparse,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        op=op,
        gradient_predivide_factor=gradient_predivide_factor,
        num_groups=num_groups,
        groups=groups,
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
        quarantine=quarantine,
    )
    return _distribute(gradtape, options.named("DistributedGradientTape"), equal_start)


def PartialDistributedGradientTape(  # noqa: N802 (Horovod's name)
    gradtape: _Tape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: AnyCompression = Compression.none,
    sparse_as_dense: bool = False,
    op: ReduceOp = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[Variable]] | None = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Layer | Iterable[Layer] | None = None,
    scale_local_gradients: bool = True,
    quarantine: bool = False,
    equal_start: bool = True,
) -> _Tape:
    """Wraps a tape as `DistributedGradientTape` does, except for the variables of some layers.

    Args:
        gradtape: the tape, new or with recorded operations, persistent or not. Both tapes share one
            recording.
        device_dense: the device that reduces dense gradients, "" for the device of the gradients.
        device_sparse: the device that reduces IndexedSlices, "" for the device of the slices.
        compression: the compression of gradients for the network, a member of `Compression`. With a
            state, such as `topk`, it reduces each gradient separately, and does not compress
            gradients for which it is unsuitable.
        sparse_as_dense: whether IndexedSlices become dense before the reduction. Otherwise the
            result is IndexedSlices, too, and rows or the whole tensor travel, whichever is smaller.
        op: Average, Sum, or, for dense gradients, Min, Max, Product or Adasum.
        gradient_predivide_factor: with Average, the divisor of gradients before the sum; the rest
            of the division by the number of ranks follows after the sum.
        num_groups: Horovod's old name of `groups`, for a number.
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
        equal_start: whether all ranks get the first rank's variables, and the state of their Keras
            optimizer, if ranks have begun with different values: before the first step in a
            `tf.function`, and at the second step of a loop that runs eagerly.

    Returns:
        A tape of a subclass of the class of `gradtape`, to use as a context manager or at once. Its
        `register_local_source(source)` excludes one more source from the reduction;
        `get_local_and_global_gradients(gradients, sources)` separates the two kinds.

    Raises:
        TfhvdError: within a strategy of tf.distribute.
        TypeError: if `gradtape` is not a `tf.GradientTape`, or a local layer is not Keras'.
        ValueError: if arguments contradict each other.

    Example:
        >>> tape = hvd.PartialDistributedGradientTape(tape, local_layers=model.layers[0])
        >>> gradients = tape.gradient(loss, model.trainable_variables)
        >>> own, shared = tape.get_local_and_global_gradients(gradients, model.trainable_variables)
    """
    options = ReductionOptions(
        device_dense=device_dense,
        device_sparse=device_sparse,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        op=op,
        gradient_predivide_factor=gradient_predivide_factor,
        num_groups=num_groups,
        groups=groups,
        process_set=process_set,
        local_layers=local_layers,
        scale_local_gradients=scale_local_gradients,
        quarantine=quarantine,
    )
    return _distribute(gradtape, options.named("PartialDistributedGradientTape"), equal_start)


def _distribute(gradtape: _Tape, options: ReductionOptions, equal_start: bool) -> _Tape:
    if not isinstance(gradtape, tf.GradientTape):
        raise TypeError(f"Received: {gradtape!r}. Expected: a tf.GradientTape.")
    require_no_strategy()
    synchronize_keras()
    reduce = GradientReducer(options)
    sync_monitor.note_keras_updates()
    if has_state(options.compression):  # the program may have imported Keras after it
        loss_scales.note_factors()
    sync_monitor.note_tape(reduce)
    return wrap(gradtape, _Reduces, _Own(gradtape, reduce, equal_start))


@dataclasses.dataclass(frozen=True)
class _Own:
    plain: tf.GradientTape
    reduce: GradientReducer
    equal_start: bool
    last_sources: list[Variable | tf.Tensor] = dataclasses.field(default_factory=list)


class _Reduces(Wrapped):
    """The methods of a distributed tape that differ from those of a plain tape."""

    __slots__ = ()
    _tfhvd: _Own

    def gradient(
        self,
        target: Nested,
        sources: Nested,
        output_gradients: Nested = None,
        unconnected_gradients: tf.UnconnectedGradients = tf.UnconnectedGradients.NONE,
        *,
        use_generic_names: bool = False,
    ) -> Nested:
        """Computes the gradients on this rank and reduces them; structured like `sources`.

        Args:
            target: the tensor to differentiate, or several tensors in lists and dicts.
            sources: the variables, or watched tensors, to differentiate by; also nested.
            output_gradients: for each target, the gradient with respect to it, from which the chain
                rule continues; None for ones.
            unconnected_gradients: whether a gradient is None or zeros if the target does not depend
                on the source.
            use_generic_names: whether the name of a reduction contains only the index of its
                gradient among the reduced ones, and not the name of the variable: for ranks that
                name their variables differently, or have different local variables between them.
        """
        of = tf.nest.flatten(sources)
        if self._tfhvd.equal_start:
            begin_as_one(self._tfhvd.reduce, of)
        averages = self._tfhvd.reduce.options.op == Average
        with contextlib.nullcontext() if averages else StepOf(None):
            gradients = self._tfhvd.plain.gradient(
                target,
                sources,
                output_gradients=output_gradients,
                unconnected_gradients=unconnected_gradients,
            )
        self._tfhvd.last_sources[:] = of
        flat = self._tfhvd.reduce(
            tf.nest.flatten(gradients),
            of,
            generic_names=use_generic_names,
            loss_scale=loss_scales.factor_of(target),
        )
        return tf.nest.pack_sequence_as(sources, flat)

    def register_local_source(self, source: Variable | tf.Tensor) -> None:
        """Excludes a source (a variable or watched tensor) from the reduction."""
        self._tfhvd.reduce.local.add(source)

    def get_local_and_global_gradients(
        self, gradients: Nested, sources: Nested = None
    ) -> tuple[list[Gradient], list[Gradient]]:
        """Separates the local gradients of this rank from those that all ranks share.

        A norm over both kinds would differ between the ranks.

        Args:
            gradients: the result of `gradient`.
            sources: the sources of the gradients; by default those of the last call of `gradient`.

        Returns:
            The gradients of local sources and those of the other sources, two flat lists.

        Raises:
            ValueError: if the numbers of sources and gradients differ.
        """
        flat = tf.nest.flatten(gradients)
        of = self._tfhvd.last_sources if sources is None else tf.nest.flatten(sources)
        if len(of) != len(flat):
            raise ValueError(
                f"Each gradient needs its source, and there are {len(flat)} gradients and "
                f"{len(of)} sources; pass what gradient(target, sources) returned, and its sources."
            )
        return self._tfhvd.reduce.split(flat, of)

    def jacobian(
        self,
        target: tf.Tensor,
        sources: Nested,
        unconnected_gradients: tf.UnconnectedGradients = tf.UnconnectedGradients.NONE,
        parallel_iterations: int | None = None,
        experimental_use_pfor: bool = True,
    ) -> Nested:
        """Computes the jacobian of this rank: see `tf.GradientTape.jacobian`."""
        return self._tfhvd.plain.jacobian(
            target, sources, unconnected_gradients, parallel_iterations, experimental_use_pfor
        )

    def batch_jacobian(
        self,
        target: tf.Tensor,
        source: tf.Tensor,
        unconnected_gradients: tf.UnconnectedGradients = tf.UnconnectedGradients.NONE,
        parallel_iterations: int | None = None,
        experimental_use_pfor: bool = True,
    ) -> tf.Tensor | None:
        """Computes the jacobians of this rank: see `tf.GradientTape.batch_jacobian`."""
        return self._tfhvd.plain.batch_jacobian(
            target, source, unconnected_gradients, parallel_iterations, experimental_use_pfor
        )
