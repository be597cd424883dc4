"""Compressions that send a part of a gradient, and remember the rest."""

from __future__ import annotations

import abc
import contextlib
import math
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import tensorflow as tf

from tfhvd.compat import loss_scales
from tfhvd.compat.variables import key_of, state_variable, tf_variable
from tfhvd.job import process
from tfhvd.runtime.process_sets import ProcessSet, global_process_set

if TYPE_CHECKING:
    from tfhvd.compat.types import Variable


class Exchange(NamedTuple):
    """The collectives of a compression for one gradient, and the factors of the gradient.

    Attributes:
        reduce: (tensor, part) -> the average or the sum of the tensor over the ranks, as the user
            asks; `part` distinguishes the collectives of one gradient.
        gather: (tensors, part) -> the ranks' tensors, each joined along the first dimension, and
            the factor for their sum: 1 / ranks for an average, 1 for a sum.
        share: the factor for this rank's gradient before the reduction. It is the rank's share in a
            weighted average, which is the sum of the ranks' products.
        loss_scale: the factor of the loss, and so of the gradient. The state is kept without this
            factor, which may be different in the next step. None for no factor.
        finite: whether the gradients of the step are finite on all ranks, a bool tensor that is the
            same on all of them. None if there is no such check.
    """

    reduce: Callable[[tf.Tensor, str], tf.Tensor]
    gather: Callable[[Sequence[tf.Tensor], str], tuple[list[tf.Tensor], tf.Tensor | float]]
    share: tf.Tensor | float = 1.0
    loss_scale: tf.Tensor | None = None
    finite: tf.Tensor | None = None

    def keep(self, state: tf.Variable, value: tf.Tensor) -> None:
        """Updates a state, except in a step that is not finite."""
        state.assign(value if self.finite is None else tf.where(self.finite, value, state))


class Saved(NamedTuple):
    """The state of a compression in a file.

    Attributes:
        left_out: by rank, the error of each variable, which is the part of its gradients that the
            rank has left out so far: arrays of the variables' shapes.
        shared: the arrays that are the same on every rank.
    """

    left_out: dict[int, list[np.ndarray]]
    shared: list[np.ndarray]

    def of(self, rank: int) -> list[np.ndarray]:
        """Returns a rank's state; its errors are zero if the file has none of this rank."""
        own = self.left_out.get(rank)
        if own is None:
            own = [np.zeros_like(value) for value in next(iter(self.left_out.values()), [])]
        return [*own, *self.shared]


class _LeftOut(tf.Module):
    """The errors of one rank, by the number of the variable."""

    def __init__(self) -> None:
        super().__init__(name="left_out")  # TensorFlow allows no name with "_" first, as ours
        self.values: list[tf.Variable] = []


_OF_RANK = "_of_rank_"


def _attribute(rank: int | str) -> str:
    return f"{_OF_RANK}{rank}"


_of_this_process: weakref.WeakSet[StatefulCompression] = weakref.WeakSet()


@contextlib.contextmanager
def left_out_as_before() -> Iterator[None]:
    """Restores the errors of this process's compressions at the end of a context."""
    before = {key_of(v): v.numpy() for each in _of_this_process for v in each.left_out}
    try:
        yield
    finally:
        for compression in _of_this_process:
            for variable in compression.left_out:
                variable.assign(before.get(key_of(variable), tf.zeros_like(variable)))


class StatefulCompression(tf.Module, metaclass=abc.ABCMeta):
    """A compression with error feedback. Subclass it for another compression.

    A rank adds the part of a gradient that it does not send, the error, to the next gradient of the
    same variable. So every part arrives, only later (Seide et al., 2014; Karimireddy et al., 2019).
    The error is kept as it would have been in the result: multiplied by the rank's share, and
    without the loss scale of Keras, if the tape gets the scaled loss. A step in which a gradient of
    any rank is not finite does not change the error, and its result is NaN.

    One object serves one optimizer, or all tapes of one training loop. Each variable has a state: a
    float32 tensor of its shape, and more with some compressions. A model of Keras 3 saves the state
    with a distributed optimizer. `tf.train.Checkpoint(compression=...)` saves it in any program,
    after a call of `build`. The error of a rank is saved under the rank's number. Each rank loads
    its error, which is zero if the file has none. If one rank saves for all, the file has the
    errors of all ranks only if the rank saves within `gathered`; Keras' `fit` does this for
    callbacks that save at the end of an epoch.

    Only dense gradients of float types with a known shape are compressed, with op Average or Sum.
    """

    def __init__(self) -> None:
        super().__init__()
        self._indices: dict[int, int] = {}  # by the variable
        # References to the variables, so that no later variable gets the same id. They are behind
        # functions, because tf.Module and checkpoints would otherwise track the variables.
        self._held: list[Callable[[], Variable]] = []
        # For checkpoints, the errors of ranks are attributes of this object with rank numbers.
        self._own_number: int | None = None
        self._gathers = False  # whether the errors of other ranks are here
        self._loaded: Saved | None = None  # for variables that have no state yet
        loss_scales.note_factors()
        _of_this_process.add(self)

    @staticmethod
    def compress(tensor: tf.Tensor) -> tuple[tf.Tensor, object]:
        """Raises TypeError: a plain reduction has no variable for which to keep a state.

        Raises:
            TypeError: always.
        """
        raise TypeError(
            "This compression keeps a state for each variable, so it cannot compress a plain "
            "tensor; pass it to DistributedOptimizer or DistributedGradientTape. For tensors use "
            "Compression.fp16 or Compression.bf16."
        )

    def build(self, variables: Iterable[Variable]) -> None:
        """Makes the state of variables now, instead of with their first gradient.

        Args:
            variables: the variables to compress, in the same order on every rank.

        Example:
            >>> compression.build(model.trainable_variables)
            >>> checkpoint = tf.train.Checkpoint(model=model, compression=compression)
        """
        for variable in variables:
            plain = tf_variable(variable)
            if self.compresses(plain):
                self._index_of(plain)

    def compresses(self, tensor: tf.Tensor | tf.Variable) -> bool:
        """Returns whether a gradient or variable of this shape and type is compressed."""
        return tensor.dtype.is_floating and tensor.shape.is_fully_defined() and self._pays(tensor)

    def __call__(self, gradient: tf.Tensor, variable: Variable, exchange: Exchange) -> tf.Tensor:
        """Reduces the gradient of a variable: only its compressed part travels.

        Returns:
            A tensor of the gradient's shape and type, the same on every rank.
        """
        index = self._index_of(tf_variable(variable))
        error = self._errors[index]
        own = tf.cast(gradient, tf.float32)
        if exchange.loss_scale is not None:
            own /= exchange.loss_scale
        if not isinstance(exchange.share, float):  # 0 for an empty batch, whose mean is NaN
            own = tf.math.multiply_no_nan(own, tf.cast(exchange.share, tf.float32))
        whole = own + error
        sent, reduced = self._exchange(whole, index, exchange)
        exchange.keep(error, whole - sent)
        if exchange.loss_scale is not None:
            reduced *= exchange.loss_scale
        if exchange.finite is not None:
            reduced = tf.where(exchange.finite, reduced, math.nan)
        return tf.cast(reduced, gradient.dtype)

    @property
    def shared_state(self) -> list[tf.Variable]:
        """The state that must be the same on every rank: all variables except the errors."""
        return []

    @property
    def left_out(self) -> list[tf.Variable]:
        """The errors of this rank, which have the shapes of the variables."""
        return [] if self._own_number is None else list(self._errors)

    def state(self) -> list[tf.Variable]:
        """Returns all variables of this rank's state, the errors first."""
        return [*self._errors, *self.shared_state]

    @contextlib.contextmanager
    def gathered(
        self, root_rank: int = 0, process_set: ProcessSet = global_process_set
    ) -> Iterator[None]:
        """Gives one rank the errors of all ranks within a context, to save them.

        Every rank enters the context. Until its end the host memory of this one rank also holds
        the compressed variables once for each rank.

        Args:
            root_rank: the rank that saves.
            process_set: the ranks that train together.

        Raises:
            RuntimeError: if ranks have states of different numbers of variables.

        Example:
            >>> with compression.gathered():
            ...     if hvd.rank() == 0:
            ...         model.save("model.keras")
        """
        others: list[int] = []
        self._number()
        self._gathers = True
        try:
            if process_set.size() > 1:
                with tf.device("/CPU:0"):
                    of_ranks = self._gather(root_rank, process_set)
                    for rank, values in of_ranks.items():
                        if rank != self._own_number:  # equal if ranks have failed meanwhile
                            self._keep(rank, values)
                            others.append(rank)
            yield
        finally:
            self._gathers = False
            for rank in others:
                delattr(self, _attribute(rank))

    def saved(self) -> Saved:
        """Returns the state to save."""
        numbers = [name[len(_OF_RANK) :] for name in vars(self) if name.startswith(_OF_RANK)]
        left_out = {int(n): getattr(self, _attribute(n)).values for n in numbers}
        return Saved(
            {rank: [v.numpy() for v in values] for rank, values in left_out.items()},
            [v.numpy() for v in self.shared_state],
        )

    def load(self, saved: Saved) -> None:
        """Loads a saved state, also for variables that have no state yet.

        Args:
            saved: the file's state, saved by any rank; this rank takes its own errors from it.
        """
        there, given = self.state(), saved.of(self._number())
        self._loaded = None if len(there) == len(given) else saved
        for variable, value in zip(there, given if self._loaded is None else ()):
            variable.assign(value)

    def _number(self) -> int:
        """Returns this rank's number, which changes if others fail, but not within `gathered`."""
        before = self._own_number
        if before is not None and (self._gathers or not process.is_initialized()):
            return before
        now = process.rank() if process.is_initialized() else 0
        if now != before:
            own = _LeftOut()
            if before is not None:
                own = getattr(self, _attribute(before))
                delattr(self, _attribute(before))
            setattr(self, _attribute(now), own)
            self._own_number = now
        return now

    @property
    def _errors(self) -> list[tf.Variable]:
        return getattr(self, _attribute(self._number())).values

    def _gather(self, root: int, process_set: ProcessSet) -> dict[int, list[tf.Tensor]]:
        """Returns the errors of the other ranks, on the root."""
        from tfhvd.ops import (  # here, because tfhvd.ops imports this module
            allgather,
            alltoall,
        )

        own, ranks = self._errors, process_set.ranks or []
        counts = allgather([len(own)], name="compression/count", process_set=process_set).numpy()
        if (counts != counts[0]).any():
            raise RuntimeError(
                "The ranks have the compression state of different numbers of variables: "
                f"{counts.tolist()} on ranks {ranks}. Call "
                "compression.build(model.trainable_variables) on every rank first."
            )
        found: dict[int, list[tf.Tensor]] = {rank: [] for rank in ranks if process.rank() == root}
        for index, error in enumerate(own):
            whole = [error.shape.num_elements() if rank == root else 0 for rank in ranks]
            received, _ = alltoall(
                tf.reshape(error, [-1]), whole, name=f"compression/{index}", process_set=process_set
            )
            for rank, values in zip(ranks, tf.split(received, len(ranks)) if found else ()):
                found[rank].append(tf.reshape(values, error.shape))
        found.pop(root, None)
        return found

    def _keep(self, rank: int, values: list[tf.Tensor]) -> None:
        kept = _LeftOut()
        for value in values:
            kept.values.append(state_variable(value, tf.float32, "error"))
        setattr(self, _attribute(rank), kept)

    @abc.abstractmethod
    def _pays(self, tensor: tf.Tensor | tf.Variable) -> bool:
        """Returns whether the compressed form of such a tensor is smaller."""

    @abc.abstractmethod
    def _exchange(
        self, whole: tf.Tensor, index: int, exchange: Exchange
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the part of `whole` that was sent, and the reduction; both have its shape."""

    def _add_state(self, variable: tf.Variable, index: int) -> None:
        """Makes more state for a variable; `index` is its number."""

    def _index_of(self, variable: tf.Variable) -> int:
        index = self._indices.get(id(variable))
        if index is None:
            index = self._indices[id(variable)] = len(self._errors)
            self._held.append(lambda: variable)
            zeros = tf.zeros_initializer()
            self._errors.append(state_variable(lambda: zeros(variable.shape), tf.float32, "error"))
            self._add_state(variable, index)
            loaded = self._loaded
            if loaded is not None and len(self.state()) == len(loaded.of(self._number())):
                with tf.init_scope():
                    self.load(loaded)
        return index
