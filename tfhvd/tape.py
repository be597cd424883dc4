"""DistributedGradientTape: a gradient tape whose gradients are reduced over the ranks."""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf

from tfhvd.compression import Compression
from tfhvd.gradients import GradientReducer
from tfhvd.ops import Average
from tfhvd.process_sets import global_process_set


def DistributedGradientTape(  # noqa: N802 (Horovod's name)
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    op: Any = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: int | list[list[Any]] | None = None,
    process_set: Any = global_process_set,
    scale_local_gradients: bool = True,
) -> tf.GradientTape:
    """Wraps a tape, so that `gradient` gives the gradients reduced over the ranks.

    Every rank must call `gradient` the same number of times, with the same sources. `jacobian` and
    `batch_jacobian` give this rank's own result. Do not apply the gradients with a wrapped
    optimizer as
    well: it would reduce them again.

    Args:
        gradtape: the tape, new or with something recorded, persistent or not. Both tapes share one
            recording.
        device_dense: the device on which dense gradients are reduced, "" for where they are.
        device_sparse: the same for IndexedSlices.
        compression: how gradients travel: `Compression.none`, `.fp16` or `.bf16`.
        sparse_as_dense: whether IndexedSlices are made dense before they are reduced.
        op: Average, Sum, Min, Max or Product.
        gradient_predivide_factor: with Average, what gradients are divided by before the sum; the
            rest of the division follows it.
        num_groups: Horovod's old name for a number given as `groups`.
        groups: into how many groups, or which lists of variables, gradients are put to be reduced
            together.
        process_set: the ranks that take part.
        scale_local_gradients: taken for Horovod's sake; there are no local sources yet.

    Returns:
        A tape of the same class as `gradtape` (a subclass of it), to use as a context manager or at
        once.

    Raises:
        TypeError: if `gradtape` is not a `tf.GradientTape`.
        ValueError: for arguments that contradict each other.

    Example:
        >>> with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
        ...     loss = compute_loss()
        >>> gradients = tape.gradient(loss, model.trainable_variables)
    """
    if not isinstance(gradtape, tf.GradientTape):
        raise TypeError(f"Received: {gradtape!r}. Expected: a tf.GradientTape.")
    if isinstance(gradtape, _Reduces):
        raise ValueError(
            "Received: a tape that is distributed already. Expected: a plain tf.GradientTape."
        )
    del scale_local_gradients
    cls = _subclass_of(type(gradtape))
    tape: Any = object.__new__(cls)
    tape.__dict__ = gradtape.__dict__  # one recording, seen through two objects
    tape._plain = gradtape
    tape._reducer = GradientReducer(
        name="DistributedGradientTape",
        op=op,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        gradient_predivide_factor=gradient_predivide_factor,
        groups=groups or num_groups or None,
        process_set=process_set,
        device_dense=device_dense,
        device_sparse=device_sparse,
    )
    return tape


class _Reduces:
    """The part of a distributed tape that differs from the plain one."""

    __slots__ = ()
    _plain: tf.GradientTape
    _reducer: GradientReducer

    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        unconnected_gradients: tf.UnconnectedGradients = tf.UnconnectedGradients.NONE,
    ) -> Any:
        """Computes the gradients on this rank and reduces them; structured like `sources`."""
        gradients = self._plain.gradient(
            target,
            sources,
            output_gradients=output_gradients,
            unconnected_gradients=unconnected_gradients,
        )
        flat = self._reducer(tf.nest.flatten(gradients), tf.nest.flatten(sources))
        return tf.nest.pack_sequence_as(sources, flat)

    def jacobian(self, *args: Any, **kwargs: Any) -> Any:
        """Computes this rank's own jacobian: see `tf.GradientTape.jacobian`."""
        return self._plain.jacobian(*args, **kwargs)

    def batch_jacobian(self, *args: Any, **kwargs: Any) -> Any:
        """Computes this rank's own jacobians: see `tf.GradientTape.batch_jacobian`."""
        return self._plain.batch_jacobian(*args, **kwargs)


@functools.cache
def _subclass_of(cls: type) -> type:
    return type(
        f"Distributed{cls.__name__}",
        (_Reduces, cls),
        # Slots, since __dict__ is shared with the plain tape.
        {"__slots__": ("_plain", "_reducer"), "__module__": __name__, "__doc__": cls.__doc__},
    )
