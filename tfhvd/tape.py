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
    """Wraps a tape, so that `gradient` gives the gradients reduced over the ranks.

    Every rank must call `gradient` the same number of times, with the same sources. `jacobian` and
    `batch_jacobian` give this rank's own result. Do not apply the gradients with a wrapped
    optimizer as well: it would reduce them again.

    In the `train_step` of a Keras model, with `tfhvd.keras` imported, ranks may have unequal data,
    of which an Average counts every sample once, and they stop together: see
    `tfhvd.keras.fit.patch`.

    Args:
        gradtape: the tape, new or with something recorded, persistent or not. Both tapes share one
            recording.
        device_dense: the device on which dense gradients are reduced, "" for their own.
        device_sparse: the device on which IndexedSlices are reduced, "" for their own.
        compression: how gradients travel: a member of `Compression`. One with a state, such as
            `topk`, reduces each gradient on its own, and leaves alone those that it does not suit.
        sparse_as_dense: whether IndexedSlices are made dense before they are reduced. Otherwise
            they stay slices, and travel as rows or as a whole tensor, as is less to send.
        op: Average, Sum, or, for dense gradients, Min, Max, Product or Adasum.
        gradient_predivide_factor: with Average, what gradients are divided by before the sum; the
            rest of the division by the number of ranks follows the sum.
        num_groups: Horovod's old name for a number given as `groups`.
        groups: into how many groups, or which lists of variables, dense gradients are put to be
            reduced together, all or none; None to have small ones put together. IndexedSlices are
            reduced on their own.
        process_set: the ranks that take part.
        scale_local_gradients: whether gradients of local variables are multiplied by the rank's
            share of an average: 1 / the number of ranks if all ranks count alike.
        quarantine: whether a rank of whose gradients in a step one is NaN or infinite has no part
            in that step, on all ranks alike: an average is that of the other ranks, a sum lacks the
            rank. Zeros if no rank is left. No gradient travels before all are computed. With
            Average and Sum.
        equal_start: whether all ranks get the first rank's values of the variables, and of what
            their Keras optimizer keeps, where ranks have begun with different ones: before the
            first step in a `tf.function`, and at the second step of a loop that runs eagerly.

    Returns:
        A tape of the same class as `gradtape` (a subclass of it), to use as a context manager or at
        once. Its `register_local_source(source)` excepts a source from the reduction;
        `get_local_and_global_gradients(gradients, sources)` tells the two kinds apart.

    Raises:
        TfhvdError: within a strategy of tf.distribute.
        TypeError: if `gradtape` is not a `tf.GradientTape`.
        ValueError: for arguments that contradict each other.

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
    """Wraps a tape as `DistributedGradientTape` does, but for the variables of some layers.

    Args:
        gradtape: the tape, new or with something recorded, persistent or not. Both tapes share one
            recording.
        device_dense: the device on which dense gradients are reduced, "" for their own.
        device_sparse: the device on which IndexedSlices are reduced, "" for their own.
        compression: how gradients travel: a member of `Compression`. One with a state, such as
            `topk`, reduces each gradient on its own, and leaves alone those that it does not suit.
        sparse_as_dense: whether IndexedSlices are made dense before they are reduced. Otherwise
            they stay slices, and travel as rows or as a whole tensor, as is less to send.
        op: Average, Sum, or, for dense gradients, Min, Max, Product or Adasum.
        gradient_predivide_factor: with Average, what gradients are divided by before the sum; the
            rest of the division by the number of ranks follows the sum.
        num_groups: Horovod's old name for a number given as `groups`.
        groups: into how many groups, or which lists of variables, dense gradients are put to be
            reduced together, all or none; None to have small ones put together. IndexedSlices are
            reduced on their own.
        process_set: the ranks that take part.
        local_layers: a Keras layer, or several, built or not, whose gradients stay each rank's own;
            None for no layer.
        scale_local_gradients: whether gradients of local variables are multiplied by the rank's
            share of an average: 1 / the number of ranks if all ranks count alike.
        quarantine: whether a rank of whose gradients in a step one is NaN or infinite has no part
            in that step, on all ranks alike: an average is that of the other ranks, a sum lacks the
            rank. Zeros if no rank is left. No gradient travels before all are computed. With
            Average and Sum.
        equal_start: whether all ranks get the first rank's values of the variables, and of what
            their Keras optimizer keeps, where ranks have begun with different ones: before the
            first step in a `tf.function`, and at the second step of a loop that runs eagerly.

    Returns:
        A tape of the same class as `gradtape` (a subclass of it), to use as a context manager or at
        once. Its `register_local_source(source)` excepts a further source from the reduction;
        `get_local_and_global_gradients(gradients, sources)` tells the two kinds apart.

    Raises:
        TfhvdError: within a strategy of tf.distribute.
        TypeError: if `gradtape` is not a `tf.GradientTape`, or a local layer is no layer of Keras.
        ValueError: for arguments that contradict each other.

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
    if has_state(options.compression):  # Keras may be imported since that was made
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
    """The part of a distributed tape that differs from the plain one."""

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
            target: what is differentiated: a tensor, or several in lists and dicts.
            sources: the variables, or watched tensors, to differentiate by; nested likewise.
            output_gradients: the gradients of something else with respect to each target, which
                the chain rule goes on from; None for ones.
            unconnected_gradients: whether what does not depend on a source is None or zeros.
            use_generic_names: whether ranks meet by the place of a gradient among those that are
                reduced alone, and not by the name of its variable too: for ranks that name their
                variables differently, or have different local ones between them.
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
        """Excepts a source (a variable or watched tensor) from the reduction."""
        self._tfhvd.reduce.local.add(source)

    def get_local_and_global_gradients(
        self, gradients: Nested, sources: Nested = None
    ) -> tuple[list[Gradient], list[Gradient]]:
        """Tells apart which gradients are this rank's own, and which all ranks share.

        A norm over both would differ between the ranks.

        Args:
            gradients: what `gradient` returned.
            sources: of what; by default what the last call of `gradient` was given.

        Returns:
            The gradients of local sources and those of the others, two flat lists.

        Raises:
            ValueError: if there are not as many sources as gradients.
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
        """Computes this rank's own jacobian: see `tf.GradientTape.jacobian`."""
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
        """Computes this rank's own jacobians: see `tf.GradientTape.batch_jacobian`."""
        return self._tfhvd.plain.batch_jacobian(
            target, source, unconnected_gradients, parallel_iterations, experimental_use_pfor
        )
