"""Compressions that send a part of a gradient, and remember what they left out."""

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
    """What a compression may do with other ranks, for one gradient.

    Attributes:
        reduce: (tensor, part) -> the tensor averaged or added up over the ranks, as the user asks;
            `part` tells the collectives of one gradient apart.
        gather: (tensors, part) -> the ranks' tensors, each joined along the first dimension, and
            what their sum is multiplied by: 1 / ranks for an average, and 1 for a sum.
        share: what this rank's gradient is multiplied by first. It is the rank's part of an average
            by weights, in which the ranks' products are added up.
        loss_scale: what the loss, and so the gradient, has been multiplied by: what is left out is
            kept without it, for it may be another one in the next step. None for nothing.
        finite: whether the gradients of the step are finite on all ranks, a bool tensor that is the
            same on all of them; None where they need not be, for the others are left out.
    """

    reduce: Callable[[tf.Tensor, str], tf.Tensor]
    gather: Callable[[Sequence[tf.Tensor], str], tuple[list[tf.Tensor], tf.Tensor | float]]
    share: tf.Tensor | float = 1.0
    loss_scale: tf.Tensor | None = None
    finite: tf.Tensor | None = None

    def keep(self, state: tf.Variable, value: tf.Tensor) -> None:
        """Updates a state, which stays as it was in a step that is not finite."""
        state.assign(value if self.finite is None else tf.where(self.finite, value, state))


class Saved(NamedTuple):
    """The state of a compression in a file.

    Attributes:
        left_out: by rank, what it has left out of the gradients of each variable: arrays of the
            variables' shapes.
        shared: the arrays that are the same on every rank.
    """

    left_out: dict[int, list[np.ndarray]]
    shared: list[np.ndarray]

    def of(self, rank: int) -> list[np.ndarray]:
        """Returns a rank's state, which has left out nothing if the file does not know it."""
        own = self.left_out.get(rank)
        if own is None:
            own = [np.zeros_like(value) for value in next(iter(self.left_out.values()), [])]
        return [*own, *self.shared]


class _LeftOut(tf.Module):
    """What one rank has left out, by the number of the variable."""

    def __init__(self) -> None:
        super().__init__(name="left_out")  # a class' name with "_" is none for TensorFlow
        self.values: list[tf.Variable] = []


_OF_RANK = "_of_rank_"


def _attribute(rank: int | str) -> str:
    return f"{_OF_RANK}{rank}"


_of_this_process: weakref.WeakSet[StatefulCompression] = weakref.WeakSet()


@contextlib.contextmanager
def left_out_as_before() -> Iterator[None]:
    """Gives back, at its end, what this process's compressions had left out at its beginning."""
    before = {key_of(v): v.numpy() for each in _of_this_process for v in each.left_out}
    try:
        yield
    finally:
        for compression in _of_this_process:
            for variable in compression.left_out:
                variable.assign(before.get(key_of(variable), tf.zeros_like(variable)))


class StatefulCompression(tf.Module, metaclass=abc.ABCMeta):
    """A compression with error feedback. Subclass it for another one.

    What a rank leaves out of its gradient it adds to the next gradient of that variable, so that
    nothing is lost, only late (Seide et al., 2014; Karimireddy et al., 2019). It is kept as it
    would have been in the result: multiplied by what the rank counted then, and without the loss
    scale of Keras, if a tape is given what that has made of the loss. A step in which a
    gradient of any rank is not finite leaves no trace in it, and its result is NaN.

    One object serves one optimizer, or all the tapes of one training loop. Its state is kept by
    variable: of the shape of the variable, in float32, and more with some compressions. A model of
    Keras 3 saves it with a distributed optimizer; `tf.train.Checkpoint(compression=...)` saves it
    anywhere, once `build` has been called. What a rank leaves out is its own, and is saved under
    the rank's number: a rank takes up its own again, and begins at zero where a file has none. If
    one rank saves for all, the others' is in the file where it saves within `gathered`; Keras'
    `fit` sees to that for callbacks that save at the end of an epoch.

    Only dense gradients of float types with a known shape are compressed, with op Average or Sum.
    """

    def __init__(self) -> None:
        super().__init__()
        self._indices: dict[int, int] = {}  # by the variable
        # So that no variable is mistaken for a later one. Behind functions, for tf.Module and
        # checkpoints would take the variables for ours.
        self._held: list[Callable[[], Variable]] = []
        # What ranks leave out is in attributes of this object with their numbers, for checkpoints.
        self._own_number: int | None = None
        self._gathers = False  # of several ranks, by their numbers
        self._loaded: Saved | None = None  # for variables that have no state yet
        loss_scales.note_factors()
        _of_this_process.add(self)

    @staticmethod
    def compress(tensor: tf.Tensor) -> tuple[tf.Tensor, object]:
        """Refuses: a plain reduction has no variable to keep a state for.

        Raises:
            TypeError: always.
        """
        raise TypeError(
            "This compression keeps a state for each variable, so it cannot compress a plain "
            "tensor; pass it to DistributedOptimizer or DistributedGradientTape. For tensors use "
            "Compression.fp16 or Compression.bf16."
        )

    def build(self, variables: Iterable[Variable]) -> None:
        """Makes the state of variables now, and not with their first gradient.

        Args:
            variables: those that are compressed, in the same order on every rank.

        Example:
            >>> compression.build(model.trainable_variables)
            >>> checkpoint = tf.train.Checkpoint(model=model, compression=compression)
        """
        for variable in variables:
            plain = tf_variable(variable)
            if self.compresses(plain):
                self._index_of(plain)

    def compresses(self, tensor: tf.Tensor | tf.Variable) -> bool:
        """Whether a gradient or variable of this shape and type is sent compressed."""
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
        if not isinstance(exchange.share, float):  # 0 of a batch without samples, whose mean is NaN
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
        """What must be the same on every rank, beside what each has left out."""
        return []

    @property
    def left_out(self) -> list[tf.Variable]:
        """What this rank has left out, of the shapes of the variables."""
        return [] if self._own_number is None else list(self._errors)

    def state(self) -> list[tf.Variable]:
        """Returns all variables of this rank's state, those of what it has left out first."""
        return [*self._errors, *self.shared_state]

    @contextlib.contextmanager
    def gathered(
        self, root_rank: int = 0, process_set: ProcessSet = global_process_set
    ) -> Iterator[None]:
        """Lets one rank have what all ranks have left out, to save it.

        Every rank enters it. It takes as much memory of that rank's host as the variables that are
        compressed, times the ranks, until it is left.

        Args:
            root_rank: the rank that saves.
            process_set: the ranks that train together.

        Raises:
            RuntimeError: if ranks have the state of different numbers of variables.

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
                        if rank != self._own_number:  # where ranks were lost meanwhile
                            self._keep(rank, values)
                            others.append(rank)
            yield
        finally:
            self._gathers = False
            for rank in others:
                delattr(self, _attribute(rank))

    def saved(self) -> Saved:
        """Returns what is to be saved now."""
        numbers = [name[len(_OF_RANK) :] for name in vars(self) if name.startswith(_OF_RANK)]
        left_out = {int(n): getattr(self, _attribute(n)).values for n in numbers}
        return Saved(
            {rank: [v.numpy() for v in values] for rank, values in left_out.items()},
            [v.numpy() for v in self.shared_state],
        )

    def load(self, saved: Saved) -> None:
        """Takes what was saved, for variables that have no state yet as well.

        Args:
            saved: of any rank; this one takes what is its own in it.
        """
        there, given = self.state(), saved.of(self._number())
        self._loaded = None if len(there) == len(given) else saved
        for variable, value in zip(there, given if self._loaded is None else ()):
            variable.assign(value)

    def _number(self) -> int:
        """This rank's, which changes where others are lost; but not while theirs are gathered."""
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
        """Returns what the other ranks have left out, on the root."""
        from tfhvd.ops import (  # Operations take a compression: they import this.
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
        """Whether the compressed form of such a tensor is smaller."""

    @abc.abstractmethod
    def _exchange(
        self, whole: tf.Tensor, index: int, exchange: Exchange
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns what was sent of `whole`, and the reduction; both of its shape."""

    def _add_state(self, variable: tf.Variable, index: int) -> None:
        """Makes further state of a variable; `index` is its number."""

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
