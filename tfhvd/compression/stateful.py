"""Compressions that send a part of a gradient, and remember what they left out."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import tensorflow as tf

from tfhvd import _compat


class Exchange(NamedTuple):
    """What a compression may do with other ranks, for one gradient.

    Attributes:
        reduce: (tensor, part) -> the tensor averaged or added up over the ranks, as the user asks;
            `part` tells the collectives of one gradient apart.
        gather: (tensor, part) -> the ranks' tensors, joined along the first dimension.
        share: what the sum of the ranks' gradients is multiplied by: 1 / ranks for an average.
        weight: what this rank counts in an average by weights, which `reduce` heeds, and who
            gathers has to; None for other reductions, and where all ranks count alike.
    """

    reduce: Callable[[tf.Tensor, str], tf.Tensor]
    gather: Callable[[tf.Tensor, str], tf.Tensor]
    share: float
    weight: tf.Tensor | None = None


class StatefulCompression(tf.Module, metaclass=abc.ABCMeta):
    """A compression with error feedback. Subclass it for another one.

    What a rank leaves out of its gradient it adds to the next gradient of that variable, so that
    nothing is lost, only late (Seide et al., 2014; Karimireddy et al., 2019).

    One object serves one optimizer, or all the tapes of one training loop. Its state is kept by
    variable: of the shape of the variable, in float32, and more with some compressions. A model of
    Keras 3 saves it with a distributed optimizer; `tf.train.Checkpoint(compression=...)` saves it
    anywhere, once `build` has been called. The error is each rank's own: a rank that has no
    checkpoint begins at zero.

    Only dense gradients of float types with a known shape are compressed, with op Average or Sum.
    """

    def __init__(self) -> None:
        super().__init__()
        self._places: dict[int, int] = {}  # by the variable
        # So that no variable is mistaken for a later one. Behind functions, for tf.Module and
        # checkpoints would take the variables for ours.
        self._held: list[Callable[[], Any]] = []
        self._errors: list[tf.Variable] = []
        self._loaded: list[Any] = []  # of a file, for variables that have no state yet

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Refuses: a plain reduction has no variable to keep a state for.

        Raises:
            TypeError: always.
        """
        raise TypeError(
            "This compression keeps a state for each variable. Received: a tensor to reduce. "
            "Expected: an argument of DistributedOptimizer or DistributedGradientTape; for tensors "
            "use Compression.fp16 or .bf16."
        )

    def build(self, variables: Iterable[Any]) -> None:
        """Makes the state of variables now, and not with their first gradient.

        Args:
            variables: those that are compressed, in the same order on every rank.

        Example:
            >>> compression.build(model.trainable_variables)
            >>> checkpoint = tf.train.Checkpoint(model=model, compression=compression)
        """
        for variable in variables:
            plain = _compat.tf_variable(variable)
            if self.compresses(plain):
                self._place_of(plain)

    def compresses(self, tensor: Any) -> bool:
        """Whether a gradient or variable of this shape and type is sent compressed."""
        return tensor.dtype.is_floating and tensor.shape.is_fully_defined() and self._pays(tensor)

    def __call__(self, gradient: tf.Tensor, variable: Any, exchange: Exchange) -> tf.Tensor:
        """Reduces the gradient of a variable: only its compressed part travels.

        Returns:
            A tensor of the gradient's shape and type, the same on every rank.
        """
        place = self._place_of(_compat.tf_variable(variable))
        error = self._errors[place]
        whole = tf.cast(gradient, tf.float32) + error
        sent, reduced = self._exchange(whole, place, exchange)
        error.assign(whole - sent)
        return tf.cast(reduced, gradient.dtype)

    @property
    def shared_state(self) -> list[tf.Variable]:
        """What must be the same on every rank, beside the errors, which need not."""
        return []

    def state(self) -> list[tf.Variable]:
        """Returns all variables of the state, in the order in which they are saved."""
        return [*self._errors, *self.shared_state]

    def load(self, values: list[Any]) -> None:
        """Takes values as of `state`, for variables that have no state yet as well."""
        there = self.state()
        self._loaded = values if len(there) != len(values) else []
        for variable, value in zip(there, values if not self._loaded else ()):
            variable.assign(value)

    @abc.abstractmethod
    def _pays(self, tensor: Any) -> bool:
        """Whether the compressed form of such a tensor is smaller."""

    @abc.abstractmethod
    def _exchange(
        self, whole: tf.Tensor, place: int, exchange: Exchange
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns what was sent of `whole`, and the reduction; both of its shape."""

    def _add_state(self, variable: tf.Variable, place: int) -> None:
        """Makes further state of a variable; `place` is its number."""

    def _place_of(self, variable: tf.Variable) -> int:
        place = self._places.get(id(variable))
        if place is None:
            place = self._places[id(variable)] = len(self._errors)
            self._held.append(lambda: variable)
            zeros = tf.zeros_initializer()
            self._errors.append(
                _compat.state_variable(lambda: zeros(variable.shape), tf.float32, "error")
            )
            self._add_state(variable, place)
            if self._loaded and len(self.state()) == len(self._loaded):
                with tf.init_scope():
                    self.load(self._loaded)
        return place
